//! Source text to ast. minijinja reads the syntax (its unstable `machinery`, hence the exact version in Cargo.toml);
//! this is the only file that knows its types.

use crate::ast::{Arg, Expr, For, Lit, Macro, Name, Op, Stmt, StmtKind, Target, Template};
use crate::fail::{fail, Fail, Kind, R};
use minijinja::machinery::{ast as mj, parse, Token, Tokenizer, WhitespaceConfig};
use minijinja::value::ValueKind;

const MAX_SOURCE_BYTES: usize = 1 << 20;
/// Operators chain to the left, so a tag's tokens bound how deep its expression nests.
const MAX_TAG_TOKENS: usize = 4000;
/// Each elif nests one deeper in the parser, which does not count them.
const MAX_ELIFS: usize = 2000;
const MAX_DEPTH: usize = 1000;

fn whitespace() -> WhitespaceConfig {
    WhitespaceConfig { keep_trailing_newline: false, lstrip_blocks: true, trim_blocks: true }
}

fn syntax_fail(e: minijinja::Error) -> Fail {
    let words = e.detail().map(str::to_owned).unwrap_or_else(|| e.kind().to_string());
    let kind = if words.contains("recursion limit") { Kind::Limit } else { Kind::Syntax };
    match e.line() {
        Some(line) => Fail { kind, words: format!("line {line}: {words}") },
        None => Fail { kind, words },
    }
}

/// The parser recurses; what could take it too deep is refused before it starts.
fn check_extent(source: &str) -> R<()> {
    let mut tokens = Tokenizer::new(source, "", false, Default::default(), whitespace());
    let (mut n_in_tag, mut n_elifs) = (0, 0);
    while let Some((token, span)) = tokens.next_token().map_err(syntax_fail)? {
        n_in_tag = match token {
            Token::TemplateData(_) | Token::VariableStart | Token::BlockStart => 0,
            _ => n_in_tag + 1,
        };
        n_elifs += matches!(token, Token::Ident("elif")) as usize;
        if n_in_tag > MAX_TAG_TOKENS {
            return fail(Kind::Limit, format!("line {}: more than {MAX_TAG_TOKENS} tokens in one tag", span.start_line));
        }
        if n_elifs > MAX_ELIFS {
            return fail(Kind::Limit, format!("line {}: more than {MAX_ELIFS} elif tags", span.start_line));
        }
    }
    Ok(())
}

/// `{% generation %}` marks what a model is trained on and prints nothing; it scopes variables as `with` does.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        out.push_str(before);
        let inner = tag.trim_start_matches(['-', '+']).trim_start();
        let lead = &tag[..tag.len() - inner.len()];
        rest = tag;
        for (word, other) in [("generation", "with"), ("endgeneration", "endwith")] {
            let Some(after) = inner.strip_prefix(word) else { continue };
            if after.trim_start().trim_start_matches(['-', '+']).starts_with("%}") {
                out.push_str(lead);
                out.push_str(other);
                rest = after;
                break;
            }
        }
    }
    out.push_str(rest);
    out
}

pub fn read(source: &[u8]) -> R<Template> {
    if source.len() > MAX_SOURCE_BYTES {
        return fail(Kind::Limit, format!("{} bytes, more than {MAX_SOURCE_BYTES}", source.len()));
    }
    let Ok(source) = std::str::from_utf8(source) else {
        return fail(Kind::Syntax, "not UTF-8");
    };
    let source = without_generation_tags(&source.replace("\r\n", "\n").replace('\r', "\n"));
    check_extent(&source)?;
    let tree = parse(&source, "", Default::default(), whitespace()).map_err(syntax_fail)?;
    let mut reader = Reader {
        source: &source,
        template: Template::default(),
        index: Default::default(),
        depth: 0,
        takes_minus_off: false,
    };
    let mj::Stmt::Template(top) = &tree else { return fail(Kind::Internal, "no template node") };
    let body = reader.stmts(&top.children)?;
    reader.template.body = body;
    Ok(reader.template)
}

struct Reader<'s> {
    source: &'s str,
    template: Template,
    index: std::collections::HashMap<String, Name>,
    depth: usize,
    takes_minus_off: bool,
}

impl Reader<'_> {
    fn starts_with(&self, e: &mj::Expr, byte: u8) -> bool {
        self.source.as_bytes().get(e.span().start_offset as usize) == Some(&byte)
    }

    /// minijinja reads `-a[0]` as `(-a)[0]`. True if e is such a chain on a minus that stands in no parentheses.
    fn is_chain_on_minus(&self, e: &mj::Expr) -> bool {
        let mut base = e;
        loop {
            base = match base {
                mj::Expr::GetAttr(x) => &x.expr,
                mj::Expr::GetItem(x) => &x.expr,
                mj::Expr::Slice(x) => &x.expr,
                mj::Expr::Call(x) => &x.expr,
                mj::Expr::UnaryOp(x) if matches!(x.op, mj::UnaryOpKind::Neg) && !std::ptr::eq(base, e) => {
                    let after = self.source.get(x.span().end_offset as usize..).unwrap_or("");
                    return !after.trim_start().starts_with(')');
                }
                _ => return false,
            };
        }
    }

    fn name(&mut self, s: &str) -> Name {
        if let Some(&n) = self.index.get(s) {
            return n;
        }
        let n = self.template.names.len() as Name;
        self.template.names.push(s.to_owned());
        self.index.insert(s.to_owned(), n);
        n
    }

    fn deeper(&mut self, line: u32) -> R<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return fail(Kind::Limit, format!("line {line}: nested more than {MAX_DEPTH} deep"));
        }
        Ok(())
    }

    fn stmts(&mut self, stmts: &[mj::Stmt]) -> R<Vec<Stmt>> {
        stmts.iter().map(|s| self.stmt(s)).collect()
    }

    fn stmt(&mut self, s: &mj::Stmt) -> R<Stmt> {
        let line = line_of(s);
        self.deeper(line)?;
        let kind = match s {
            mj::Stmt::EmitRaw(x) => StmtKind::Raw(x.raw.into()),
            mj::Stmt::EmitExpr(x) => StmtKind::Emit(self.expr(&x.expr)?),
            mj::Stmt::ForLoop(x) => StmtKind::For(self.for_loop(x)?),
            mj::Stmt::IfCond(x) => {
                StmtKind::If(self.expr(&x.expr)?, self.stmts(&x.true_body)?, self.stmts(&x.false_body)?)
            }
            mj::Stmt::WithBlock(x) => {
                let mut sets = vec![];
                for (target, value) in &x.assignments {
                    sets.push((self.target(target)?, self.expr(value)?));
                }
                StmtKind::With(sets, self.stmts(&x.body)?)
            }
            mj::Stmt::Set(x) => StmtKind::Set(self.target(&x.target)?, self.expr(&x.expr)?),
            mj::Stmt::SetBlock(x) => {
                let filter = x.filter.as_ref().map(|f| self.expr(f)).transpose()?;
                StmtKind::SetBlock(self.target(&x.target)?, filter, self.stmts(&x.body)?)
            }
            mj::Stmt::AutoEscape(x) => StmtKind::With(vec![], self.stmts(&x.body)?),
            mj::Stmt::FilterBlock(x) => StmtKind::FilterBlock(self.expr(&x.filter)?, self.stmts(&x.body)?),
            mj::Stmt::Macro(x) => StmtKind::Macro(self.macro_decl(x)?),
            mj::Stmt::CallBlock(x) => {
                let (callee, args) = (self.expr(&x.call.expr)?, self.args(&x.call.args)?);
                StmtKind::CallBlock(callee, args, self.macro_decl(&x.macro_decl)?)
            }
            mj::Stmt::Do(x) => {
                let (callee, args) = (self.expr(&x.call.expr)?, self.args(&x.call.args)?);
                StmtKind::Do(Expr::Call(Box::new(callee), args))
            }
            mj::Stmt::Break(_) => StmtKind::Break,
            mj::Stmt::Continue(_) => StmtKind::Continue,
            _ => return fail(Kind::Syntax, format!("line {line}: a template tag that chat templates do not have")),
        };
        self.depth -= 1;
        Ok(Stmt { line, kind })
    }

    fn for_loop(&mut self, x: &mj::ForLoop) -> R<For> {
        Ok(For {
            target: self.target(&x.target)?,
            iter: self.expr(&x.iter)?,
            filter: x.filter_expr.as_ref().map(|f| self.expr(f)).transpose()?,
            is_recursive: x.recursive,
            body: self.stmts(&x.body)?,
            otherwise: self.stmts(&x.else_body)?,
        })
    }

    fn macro_decl(&mut self, x: &mj::Macro) -> R<usize> {
        let mut params = vec![];
        for arg in &x.args {
            match arg {
                mj::Expr::Var(v) => params.push(self.name(v.id)),
                _ => return fail(Kind::Syntax, format!("macro {}: a parameter is no name", x.name)),
            }
        }
        let decl = Macro {
            name: self.name(x.name),
            params,
            defaults: x.defaults.iter().map(|d| self.expr(d)).collect::<R<_>>()?,
            body: self.stmts(&x.body)?,
        };
        self.template.macros.push(decl);
        Ok(self.template.macros.len() - 1)
    }

    fn target(&mut self, e: &mj::Expr) -> R<Target> {
        Ok(match e {
            mj::Expr::Var(v) => Target::Var(self.name(v.id)),
            mj::Expr::List(l) => Target::Tuple(l.items.iter().map(|x| self.target(x)).collect::<R<_>>()?),
            mj::Expr::GetAttr(a) => match &a.expr {
                mj::Expr::Var(v) => Target::Attr(self.name(v.id), a.name.to_owned()),
                _ => return fail(Kind::Syntax, "cannot assign to an attribute of an expression"),
            },
            _ => return fail(Kind::Syntax, "cannot assign to an expression"),
        })
    }

    fn args(&mut self, args: &[mj::CallArg]) -> R<Vec<Arg>> {
        args.iter()
            .map(|a| {
                Ok(match a {
                    mj::CallArg::Pos(e) => Arg::Pos(self.expr(e)?),
                    mj::CallArg::Kwarg(name, e) => Arg::Named((*name).to_owned(), self.expr(e)?),
                    mj::CallArg::PosSplat(e) => Arg::Splat(self.expr(e)?),
                    mj::CallArg::KwargSplat(e) => Arg::NamedSplat(self.expr(e)?),
                })
            })
            .collect()
    }

    fn boxed(&mut self, e: &mj::Expr) -> R<Box<Expr>> {
        Ok(Box::new(self.expr(e)?))
    }

    fn boxed_opt(&mut self, e: &Option<mj::Expr>) -> R<Option<Box<Expr>>> {
        e.as_ref().map(|x| self.boxed(x)).transpose()
    }

    fn expr(&mut self, e: &mj::Expr) -> R<Expr> {
        self.deeper(e.span().start_line as u32)?;
        if !self.takes_minus_off && self.is_chain_on_minus(e) {
            self.takes_minus_off = true;
            let chain = self.expr(e)?;
            self.depth -= 1;
            return Ok(Expr::Neg(Box::new(chain)));
        }
        let out = match e {
            mj::Expr::UnaryOp(x) if self.takes_minus_off => {
                self.takes_minus_off = false;
                self.expr(&x.expr)?
            }
            mj::Expr::Var(x) => Expr::Var(self.name(x.id)),
            mj::Expr::Const(x) => Expr::Lit(literal(&x.value)?),
            mj::Expr::Slice(x) => Expr::Slice(
                self.boxed(&x.expr)?,
                [self.boxed_opt(&x.start)?, self.boxed_opt(&x.stop)?, self.boxed_opt(&x.step)?],
            ),
            mj::Expr::UnaryOp(x) => match x.op {
                mj::UnaryOpKind::Not => Expr::Not(self.boxed(&x.expr)?),
                mj::UnaryOpKind::Neg => Expr::Neg(self.boxed(&x.expr)?),
            },
            mj::Expr::BinOp(x) => Expr::Binary(binary_op(x.op), self.boxed(&x.left)?, self.boxed(&x.right)?),
            mj::Expr::Compare(x) => {
                let mut ops = vec![];
                for op in &x.ops {
                    ops.push((compare_op(op.op), self.expr(&op.expr)?));
                }
                Expr::Compare(self.boxed(&x.expr)?, ops)
            }
            mj::Expr::IfExpr(x) => {
                Expr::If(self.boxed(&x.test_expr)?, self.boxed(&x.true_expr)?, self.boxed_opt(&x.false_expr)?)
            }
            mj::Expr::Filter(x) => Expr::Filter(self.boxed_opt(&x.expr)?, x.name.to_owned(), self.args(&x.args)?),
            mj::Expr::Test(x) => Expr::Test(self.boxed(&x.expr)?, x.name.to_owned(), self.args(&x.args)?),
            mj::Expr::GetAttr(x) => Expr::Attr(self.boxed(&x.expr)?, x.name.to_owned()),
            mj::Expr::GetItem(x) => Expr::Item(self.boxed(&x.expr)?, self.boxed(&x.subscript_expr)?),
            mj::Expr::Call(x) => Expr::Call(self.boxed(&x.expr)?, self.args(&x.args)?),
            mj::Expr::List(x) => {
                let items = x.items.iter().map(|i| self.expr(i)).collect::<R<_>>()?;
                Expr::List(items, self.starts_with(e, b'('))
            }
            mj::Expr::Map(x) => {
                let mut pairs = vec![];
                for (k, v) in x.keys.iter().zip(&x.values) {
                    pairs.push((self.expr(k)?, self.expr(v)?));
                }
                Expr::Dict(pairs)
            }
        };
        self.depth -= 1;
        Ok(out)
    }
}

fn literal(v: &minijinja::Value) -> R<Lit> {
    Ok(match v.kind() {
        ValueKind::None => Lit::None,
        ValueKind::Bool => Lit::Bool(v.is_true()),
        ValueKind::Number => match i128::try_from(v.clone()) {
            Ok(i) if v.is_integer() => Lit::Int(i),
            _ => Lit::Float(f64::try_from(v.clone()).unwrap_or(f64::NAN)),
        },
        ValueKind::String => Lit::Str(v.as_str().unwrap_or("").into()),
        kind => return fail(Kind::Syntax, format!("a literal of kind {kind}")),
    })
}

fn binary_op(op: mj::BinOpKind) -> Op {
    match op {
        mj::BinOpKind::Eq => Op::Eq,
        mj::BinOpKind::Ne => Op::Ne,
        mj::BinOpKind::Lt => Op::Lt,
        mj::BinOpKind::Lte => Op::Lte,
        mj::BinOpKind::Gt => Op::Gt,
        mj::BinOpKind::Gte => Op::Gte,
        mj::BinOpKind::ScAnd => Op::And,
        mj::BinOpKind::ScOr => Op::Or,
        mj::BinOpKind::Add => Op::Add,
        mj::BinOpKind::Sub => Op::Sub,
        mj::BinOpKind::Mul => Op::Mul,
        mj::BinOpKind::Div => Op::Div,
        mj::BinOpKind::FloorDiv => Op::FloorDiv,
        mj::BinOpKind::Rem => Op::Rem,
        mj::BinOpKind::Pow => Op::Pow,
        mj::BinOpKind::Concat => Op::Concat,
        mj::BinOpKind::In => Op::In,
    }
}

fn compare_op(op: mj::CompareOpKind) -> Op {
    match op {
        mj::CompareOpKind::Eq => Op::Eq,
        mj::CompareOpKind::Ne => Op::Ne,
        mj::CompareOpKind::Lt => Op::Lt,
        mj::CompareOpKind::Lte => Op::Lte,
        mj::CompareOpKind::Gt => Op::Gt,
        mj::CompareOpKind::Gte => Op::Gte,
        mj::CompareOpKind::In => Op::In,
        mj::CompareOpKind::NotIn => Op::NotIn,
    }
}

fn line_of(s: &mj::Stmt) -> u32 {
    let span = match s {
        mj::Stmt::Template(x) => x.span(),
        mj::Stmt::EmitExpr(x) => x.span(),
        mj::Stmt::EmitRaw(x) => x.span(),
        mj::Stmt::ForLoop(x) => x.span(),
        mj::Stmt::IfCond(x) => x.span(),
        mj::Stmt::WithBlock(x) => x.span(),
        mj::Stmt::Set(x) => x.span(),
        mj::Stmt::SetBlock(x) => x.span(),
        mj::Stmt::AutoEscape(x) => x.span(),
        mj::Stmt::FilterBlock(x) => x.span(),
        mj::Stmt::Macro(x) => x.span(),
        mj::Stmt::CallBlock(x) => x.span(),
        mj::Stmt::Continue(x) => x.span(),
        mj::Stmt::Break(x) => x.span(),
        mj::Stmt::Do(x) => x.span(),
    };
    span.start_line as u32
}
