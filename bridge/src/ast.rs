//! A template as the evaluator walks it. Owned, immutable, shared by all threads.

use std::sync::Arc;

/// Index into Template::names.
pub type Name = u32;

#[derive(Clone)]
pub enum Lit {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Arc<str>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Rem,
    Pow,
    Concat,
    And,
    Or,
    Eq,
    Ne,
    Lt,
    Lte,
    Gt,
    Gte,
    In,
    NotIn,
}

pub enum Arg {
    Pos(Expr),
    Named(String, Expr),
    Splat(Expr),
    NamedSplat(Expr),
}

pub enum Expr {
    Lit(Lit),
    Var(Name),
    List(Vec<Expr>, bool), // items, whether it is a tuple
    Dict(Vec<(Expr, Expr)>),
    Attr(Box<Expr>, String),
    Item(Box<Expr>, Box<Expr>),
    Slice(Box<Expr>, [Option<Box<Expr>>; 3]),
    Call(Box<Expr>, Vec<Arg>),
    Filter(Option<Box<Expr>>, String, Vec<Arg>), // no input: the text of the filter block
    Test(Box<Expr>, String, Vec<Arg>),
    Not(Box<Expr>),
    Neg(Box<Expr>),
    Binary(Op, Box<Expr>, Box<Expr>),
    Compare(Box<Expr>, Vec<(Op, Expr)>),
    If(Box<Expr>, Box<Expr>, Option<Box<Expr>>), // test, then, else
}

pub enum Target {
    Var(Name),
    Attr(Name, String),
    Tuple(Vec<Target>),
}

pub struct For {
    pub target: Target,
    pub iter: Expr,
    pub filter: Option<Expr>,
    pub is_recursive: bool,
    pub body: Vec<Stmt>,
    pub otherwise: Vec<Stmt>,
}

pub struct Macro {
    pub name: Name,
    pub params: Vec<Name>,
    pub defaults: Vec<Expr>, // of the last params
    pub body: Vec<Stmt>,
}

pub enum StmtKind {
    Raw(Arc<str>),
    Emit(Expr),
    For(For),
    If(Expr, Vec<Stmt>, Vec<Stmt>),
    With(Vec<(Target, Expr)>, Vec<Stmt>),
    Set(Target, Expr),
    SetBlock(Target, Option<Expr>, Vec<Stmt>),
    FilterBlock(Expr, Vec<Stmt>),
    Macro(usize),
    CallBlock(Expr, Vec<Arg>, usize), // the callee, its arguments, the macro that becomes its caller()
    Do(Expr),
    Break,
    Continue,
}

pub struct Stmt {
    pub line: u32,
    pub kind: StmtKind,
}

#[derive(Default)]
pub struct Template {
    pub names: Vec<String>,
    pub macros: Vec<Macro>,
    pub body: Vec<Stmt>,
}
