//! The evaluator: jinja2's statements, scopes and calls over ast, within the budget of fail.rs.

mod calls;

use crate::ast::{Arg, Expr, For, Lit, Name, Op, Stmt, StmtKind, Target, Template};
use crate::fail::{fail, runtime, spend_steps, Kind, R};
use crate::filters;
use crate::methods;
use crate::ops;
use crate::predicates;
use crate::text::{Builder, Ranges, Text};
use crate::value::{Global, Value};

/// Nested evaluations; each takes well below 16 KiB of the render thread's stack.
const MAX_DEPTH: usize = 2000;
const MAX_OUTPUT_BYTES: usize = 16 << 20;

#[derive(Default)]
pub struct Args {
    pub pos: Vec<Value>,
    pub named: Vec<(String, Value)>,
}

impl Args {
    /// The argument at this place or of this name.
    pub fn get(&self, place: usize, name: &str) -> Option<Value> {
        let named = || self.named.iter().find(|x| x.0 == name).map(|x| x.1.clone());
        self.pos.get(place).cloned().or_else(named)
    }
}

struct Frame {
    parent: usize,
    vars: Vec<(Name, Value)>,
}

struct Loop {
    items: Vec<Value>,
    at: usize,
    depth0: usize,
    changed: Option<Value>,
}

#[derive(PartialEq)]
enum Flow {
    Next,
    Break,
    Continue,
}

pub struct Eval<'t> {
    template: &'t Template,
    frames: Vec<Frame>, // [0] holds the request's variables and what the template sets at its top
    namespaces: Vec<Vec<(String, Value)>>,
    loops: Vec<Loop>,
    out: Vec<Builder>,
    depth: usize,
    line: u32,
    loop_name: Option<Name>,
    caller_name: Option<Name>,
    varargs_name: Option<Name>,
    kwargs_name: Option<Name>,
    pub now_s: i64,
}

/// Renders; on failure the words begin with the template's line.
pub fn render(template: &Template, vars: Vec<(&str, Value)>, now_s: i64) -> R<(String, Ranges)> {
    let name_of = |s: &str| template.names.iter().position(|n| n == s).map(|i| i as Name);
    let mut ev = Eval {
        template,
        frames: vec![Frame { parent: 0, vars: vec![] }],
        namespaces: vec![],
        loops: vec![],
        out: vec![Builder::default()],
        depth: 0,
        line: 1,
        loop_name: name_of("loop"),
        caller_name: name_of("caller"),
        varargs_name: name_of("varargs"),
        kwargs_name: name_of("kwargs"),
        now_s,
    };
    for (key, v) in vars {
        if let Some(name) = name_of(key) {
            ev.frames[0].vars.push((name, v));
        }
    }
    match ev.block(&template.body) {
        Ok(_) => Ok(ev.out.pop().unwrap_or_default().into_parts()),
        Err(mut e) => {
            if e.kind != Kind::Refused {
                e.words = format!("line {}: {}", ev.line, e.words);
            }
            Err(e)
        }
    }
}

impl<'t> Eval<'t> {
    // Scopes.

    fn set(&mut self, name: Name, v: Value) {
        let top = self.frames.len() - 1;
        let vars = &mut self.frames[top].vars;
        match vars.iter_mut().find(|x| x.0 == name) {
            Some(old) => old.1 = v,
            None => vars.push((name, v)),
        }
    }

    /// A variable that the template may not mention.
    fn set_if_named(&mut self, name: Option<Name>, v: Value) {
        if let Some(name) = name {
            self.set(name, v);
        }
    }

    fn look_up(&self, name: Name) -> Value {
        let mut at = self.frames.len() - 1;
        loop {
            let frame = &self.frames[at];
            if let Some(found) = frame.vars.iter().find(|x| x.0 == name) {
                return found.1.clone();
            }
            if at == 0 {
                break;
            }
            at = frame.parent;
        }
        let s = &self.template.names[name as usize];
        match s.as_str() {
            "range" => Value::Global(Global::Range),
            "namespace" => Value::Global(Global::Namespace),
            "dict" => Value::Global(Global::Dict),
            "raise_exception" => Value::Global(Global::Raise),
            "strftime_now" => Value::Global(Global::StrftimeNow),
            _ => Value::undefined(format!("'{s}' is undefined")),
        }
    }

    fn push_frame(&mut self) {
        self.frames.push(Frame { parent: self.frames.len() - 1, vars: vec![] });
    }

    fn assign(&mut self, target: &Target, v: Value) -> R<()> {
        match target {
            Target::Var(name) => self.set(*name, v),
            Target::Attr(name, attr) => match self.look_up(*name) {
                Value::Namespace(ns) => {
                    let vars = &mut self.namespaces[ns];
                    spend_steps(1 + vars.len() / 16)?;
                    match vars.iter_mut().find(|x| x.0 == *attr) {
                        Some(old) => old.1 = v,
                        None => vars.push((attr.clone(), v)),
                    }
                }
                _ => return runtime("cannot assign attribute on non-namespace object"),
            },
            Target::Tuple(targets) => {
                let items = v.iterate()?;
                if items.len() != targets.len() {
                    return runtime(format!("{} values to unpack, {} expected", items.len(), targets.len()));
                }
                for (t, item) in targets.iter().zip(items) {
                    self.assign(t, item)?;
                }
            }
        }
        Ok(())
    }

    // Statements.

    fn deeper(&mut self) -> R<()> {
        spend_steps(1)?;
        if self.depth >= MAX_DEPTH {
            return fail(Kind::Limit, format!("nested more than {MAX_DEPTH} deep"));
        }
        self.depth += 1;
        Ok(())
    }

    fn block(&mut self, stmts: &'t [Stmt]) -> R<Flow> {
        for s in stmts {
            self.deeper()?;
            self.line = s.line;
            let flow = self.stmt(&s.kind)?;
            self.depth -= 1;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn emit(&mut self, write: impl FnOnce(&mut Builder) -> R<()>) -> R<()> {
        let Some(out) = self.out.last_mut() else { return fail(Kind::Internal, "no output") };
        write(out)?;
        if out.len() > MAX_OUTPUT_BYTES {
            return fail(Kind::Limit, format!("the text is longer than {MAX_OUTPUT_BYTES} bytes"));
        }
        Ok(())
    }

    /// Runs a body in a scope of its own and gives what it printed.
    fn capture(&mut self, body: &'t [Stmt]) -> R<(Text, Flow)> {
        self.push_frame();
        self.out.push(Builder::default());
        let flow = self.block(body)?;
        self.frames.pop();
        Ok((self.out.pop().unwrap_or_default().finish(), flow))
    }

    fn stmt(&mut self, kind: &'t StmtKind) -> R<Flow> {
        match kind {
            StmtKind::Raw(s) => self.emit(|b| b.push(s, false))?,
            StmtKind::Emit(e) => {
                let v = self.expr(e)?;
                self.emit(|b| crate::value::print(b, &v))?;
            }
            StmtKind::If(test, yes, no) => {
                let body = if self.expr(test)?.is_true() { yes } else { no };
                return self.block(body);
            }
            StmtKind::For(f) => {
                let v = self.expr(&f.iter)?;
                return self.for_loop(f, v, 0);
            }
            StmtKind::With(sets, body) => {
                let values = sets.iter().map(|s| self.expr(&s.1)).collect::<R<Vec<_>>>()?;
                self.push_frame();
                for (s, v) in sets.iter().zip(values) {
                    self.assign(&s.0, v)?;
                }
                let flow = self.block(body)?;
                self.frames.pop();
                return Ok(flow);
            }
            StmtKind::Set(target, e) => {
                let v = self.expr(e)?;
                self.assign(target, v)?;
            }
            StmtKind::SetBlock(target, filter, body) => {
                let (text, flow) = self.capture(body)?;
                let mut v = Value::Str(text);
                if let Some(f) = filter {
                    v = self.filter_block(f, v)?;
                }
                self.assign(target, v)?;
                return Ok(flow);
            }
            StmtKind::FilterBlock(f, body) => {
                let (text, flow) = self.capture(body)?;
                let v = self.filter_block(f, Value::Str(text))?;
                self.emit(|b| crate::value::print(b, &v))?;
                return Ok(flow);
            }
            StmtKind::Macro(idx) => {
                let name = self.template.macros[*idx].name;
                let v = Value::Macro(*idx, self.frames.len() - 1);
                self.set(name, v);
            }
            StmtKind::CallBlock(callee, args, idx) => {
                let f = self.expr(callee)?;
                let mut args = self.args(args)?;
                args.named.push(("caller".into(), Value::Macro(*idx, self.frames.len() - 1)));
                let v = self.call(&f, args)?;
                self.emit(|b| crate::value::print(b, &v))?;
            }
            StmtKind::Do(e) => {
                self.expr(e)?;
            }
            StmtKind::Break => return Ok(Flow::Break),
            StmtKind::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn filter_block(&mut self, f: &'t Expr, input: Value) -> R<Value> {
        match f {
            Expr::Filter(inner, name, args) => {
                let input = match inner {
                    Some(inner) => self.filter_block(inner, input)?,
                    None => input,
                };
                let args = self.args(args)?;
                filters::call(self, name, input, args)
            }
            _ => self.expr(f),
        }
    }

    fn for_loop(&mut self, f: &'t For, over: Value, depth0: usize) -> R<Flow> {
        if f.is_recursive {
            return runtime("recursive loops are not supported");
        }
        let mut items = over.iterate()?;
        if let Some(test) = &f.filter {
            let mut kept = vec![];
            for item in items {
                self.push_frame();
                self.assign(&f.target, item.clone())?;
                if self.expr(test)?.is_true() {
                    kept.push(item);
                }
                self.frames.pop();
            }
            items = kept;
        }
        if items.is_empty() {
            self.push_frame();
            let flow = self.block(&f.otherwise)?;
            self.frames.pop();
            return Ok(flow);
        }
        let loop_idx = self.loops.len();
        let n = items.len();
        self.loops.push(Loop { items, at: 0, depth0, changed: None });
        for i in 0..n {
            spend_steps(1)?;
            self.loops[loop_idx].at = i;
            let item = self.loops[loop_idx].items[i].clone();
            self.push_frame();
            self.set_if_named(self.loop_name, Value::Loop(loop_idx));
            self.assign(&f.target, item)?;
            let flow = self.block(&f.body)?;
            self.frames.pop();
            if flow == Flow::Break {
                break;
            }
        }
        self.loops.truncate(loop_idx);
        Ok(Flow::Next)
    }

    // Expressions.

    fn args(&mut self, args: &'t [Arg]) -> R<Args> {
        let mut out = Args::default();
        for a in args {
            match a {
                Arg::Pos(e) => out.pos.push(self.expr(e)?),
                Arg::Named(name, e) => out.named.push((name.clone(), self.expr(e)?)),
                Arg::Splat(e) => out.pos.extend(self.expr(e)?.iterate()?),
                Arg::NamedSplat(e) => {
                    let Value::Dict(d) = self.expr(e)? else { return runtime("argument after ** must be a mapping") };
                    for (k, v) in &d.items {
                        out.named.push((k.as_str().unwrap_or("").to_owned(), v.clone()));
                    }
                }
            }
        }
        Ok(out)
    }

    fn expr(&mut self, e: &'t Expr) -> R<Value> {
        self.deeper()?;
        let v = self.expr_inner(e)?;
        self.depth -= 1;
        Ok(v)
    }

    fn expr_inner(&mut self, e: &'t Expr) -> R<Value> {
        Ok(match e {
            Expr::Lit(lit) => match lit {
                Lit::None => Value::None,
                Lit::Bool(b) => Value::Bool(*b),
                Lit::Int(i) => Value::Int(*i),
                Lit::Float(f) => Value::Float(*f),
                Lit::Str(s) => Value::Str(Text::shared(s)),
            },
            Expr::Var(name) => self.look_up(*name),
            Expr::List(items, is_tuple) => {
                let items = items.iter().map(|x| self.expr(x)).collect::<R<_>>()?;
                if *is_tuple { Value::tuple(items)? } else { Value::list(items)? }
            }
            Expr::Dict(pairs) => {
                let mut items = vec![];
                for (k, v) in pairs {
                    items.push((self.expr(k)?, self.expr(v)?));
                }
                Value::dict(items)?
            }
            Expr::Attr(of, name) => {
                let of = self.expr(of)?;
                self.attr(&of, name)?
            }
            Expr::Item(of, key) => {
                let (of, key) = (self.expr(of)?, self.expr(key)?);
                self.item(&of, &key)?
            }
            Expr::Slice(of, bounds) => {
                let of = self.expr(of)?;
                let mut values = [None, None, None];
                for (v, b) in values.iter_mut().zip(bounds) {
                    *v = b.as_ref().map(|x| self.expr(x)).transpose()?;
                }
                ops::slice(&of, &values)?
            }
            Expr::Call(callee, args) => {
                let f = self.expr(callee)?;
                let args = self.args(args)?;
                self.call(&f, args)?
            }
            Expr::Filter(of, name, args) => {
                let of = of.as_ref().map(|x| self.expr(x)).transpose()?.unwrap_or(Value::None);
                let args = self.args(args)?;
                filters::call(self, name, of, args)?
            }
            Expr::Test(of, name, args) => {
                let of = self.expr(of)?;
                let args = self.args(args)?;
                Value::Bool(predicates::call(name, &of, &args.pos)?)
            }
            Expr::Not(x) => Value::Bool(!self.expr(x)?.is_true()),
            Expr::Neg(x) => ops::negate(&self.expr(x)?)?,
            Expr::Binary(Op::And, a, b) => {
                let a = self.expr(a)?;
                if a.is_true() { self.expr(b)? } else { a }
            }
            Expr::Binary(Op::Or, a, b) => {
                let a = self.expr(a)?;
                if a.is_true() { a } else { self.expr(b)? }
            }
            Expr::Binary(op, a, b) => {
                let (a, b) = (self.expr(a)?, self.expr(b)?);
                ops::binary(*op, &a, &b)?
            }
            Expr::Compare(first, rest) => {
                let mut left = self.expr(first)?;
                for (op, e) in rest {
                    let right = self.expr(e)?;
                    if !ops::binary(*op, &left, &right)?.is_true() {
                        return Ok(Value::Bool(false));
                    }
                    left = right;
                }
                Value::Bool(true)
            }
            Expr::If(test, yes, no) => {
                if self.expr(test)?.is_true() {
                    self.expr(yes)?
                } else {
                    match no {
                        Some(no) => self.expr(no)?,
                        None => Value::undefined("the inline if-expression was false and has no else"),
                    }
                }
            }
        })
    }

    /// `of.name`: attributes and methods first, then items.
    pub fn attr(&self, of: &Value, name: &str) -> R<Value> {
        match of {
            Value::Undefined(words) => return runtime(words.to_string()),
            Value::Namespace(ns) => {
                let vars = &self.namespaces[*ns];
                spend_steps(1 + vars.len() / 16)?;
                if let Some(found) = vars.iter().find(|x| x.0 == name) {
                    return Ok(found.1.clone());
                }
            }
            Value::Loop(idx) => {
                if let Some(v) = self.loop_attr(*idx, name)? {
                    return Ok(v);
                }
            }
            _ if methods::has(of, name) => return Ok(Value::Method((of.clone(), name.to_owned()).into())),
            Value::Dict(_) => {
                if let Some(v) = of.dict_get(&Value::Str(Text::new(name)))? {
                    return Ok(v);
                }
            }
            _ => {}
        }
        let of_words = match of {
            Value::None => "'None'".to_owned(),
            _ => format!("'{} object'", of.type_name()),
        };
        Ok(Value::undefined(format!("{of_words} has no attribute '{name}'")))
    }

    /// `of[key]`: items first, then attributes.
    pub fn item(&self, of: &Value, key: &Value) -> R<Value> {
        if let Value::Undefined(words) = of {
            return runtime(words.to_string());
        }
        let found = match (of, key.as_int()) {
            (Value::Dict(_), _) => of.dict_get(key)?,
            (Value::List(_) | Value::Str(_), Some(i)) => ops::at(of, i)?,
            _ => None,
        };
        match (found, key) {
            (Some(v), _) => Ok(v),
            (None, Value::Str(name)) => self.attr(of, name.as_str()),
            (None, _) => Ok(Value::undefined(format!("{} has no element {}", of.type_name(), key.to_text()?.as_str()))),
        }
    }

    /// A path of attributes and numbers as filters take it: `function.name`, `0`.
    pub fn path(&self, of: &Value, path: &Value, default: Option<&Value>) -> R<Value> {
        let or_default = |v: Value| match default {
            Some(d) if v.is_undefined() => d.clone(),
            _ => v,
        };
        let Value::Str(t) = path else { return Ok(or_default(self.item(of, path)?)) };
        let mut v = of.clone();
        for part in t.as_str().split('.') {
            v = or_default(match part.parse::<i128>() {
                Ok(i) => self.item(&v, &Value::Int(i))?,
                Err(_) => self.item(&v, &Value::Str(Text::new(part)))?,
            });
        }
        Ok(v)
    }

    fn loop_attr(&self, idx: usize, name: &str) -> R<Option<Value>> {
        let Some(l) = self.loops.get(idx) else { return Ok(None) };
        let n = l.items.len();
        let int = |i: usize| Value::Int(i as i128);
        Ok(Some(match name {
            "index" => int(l.at + 1),
            "index0" => int(l.at),
            "revindex" => int(n - l.at),
            "revindex0" => int(n - l.at - 1),
            "first" => Value::Bool(l.at == 0),
            "last" => Value::Bool(l.at + 1 == n),
            "length" => int(n),
            "depth" => int(l.depth0 + 1),
            "depth0" => int(l.depth0),
            "previtem" if l.at > 0 => l.items[l.at - 1].clone(),
            "previtem" => Value::undefined("there is no previous item"),
            "nextitem" if l.at + 1 < n => l.items[l.at + 1].clone(),
            "nextitem" => Value::undefined("there is no next item"),
            "cycle" | "changed" => Value::Method((Value::Loop(idx), name.to_owned()).into()),
            _ => return Ok(None),
        }))
    }
}
