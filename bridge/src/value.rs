//! Python's values as templates see them: equality, order, truth, and how they print.

use crate::fail::{runtime, spend_bytes, spend_steps, R};
use crate::text::{Builder, Text};
use std::cmp::Ordering;
use std::rc::Rc;

/// Lists in lists: deeper ones would overflow the stack when they are compared or freed.
const MAX_NESTING: u32 = 200;

pub struct List {
    pub items: Vec<Value>,
    pub is_tuple: bool,
    nesting: u32,
}

pub struct Dict {
    pub items: Vec<(Value, Value)>,
    nesting: u32,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Global {
    Range,
    Namespace,
    Dict,
    Raise,
    StrftimeNow,
}

#[derive(Clone)]
pub enum Value {
    Undefined(Rc<str>), // the words of the error when it is used
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Text),
    List(Rc<List>),
    Dict(Rc<Dict>),
    Namespace(usize),
    Loop(usize),
    Macro(usize, usize), // index in the template, frame it was defined in
    Global(Global),
    Method(Rc<(Value, String)>),
}

fn nesting_of(v: &Value) -> u32 {
    match v {
        Value::List(l) => l.nesting,
        Value::Dict(d) => d.nesting,
        Value::Method(m) => nesting_of(&m.0),
        _ => 0,
    }
}

fn nest<'a>(items: impl Iterator<Item = &'a Value>) -> R<u32> {
    let nesting = 1 + items.map(nesting_of).max().unwrap_or(0);
    if nesting > MAX_NESTING {
        return crate::fail::fail(crate::fail::Kind::Limit, "values are nested more than 200 deep");
    }
    Ok(nesting)
}

impl Value {
    pub fn str(s: &str) -> R<Value> {
        spend_bytes(s.len())?;
        Ok(Value::Str(Text::new(s)))
    }
    pub fn list(items: Vec<Value>) -> R<Value> {
        Value::sequence(items, false)
    }
    pub fn tuple(items: Vec<Value>) -> R<Value> {
        Value::sequence(items, true)
    }
    fn sequence(items: Vec<Value>, is_tuple: bool) -> R<Value> {
        spend_bytes(48 + items.len() * std::mem::size_of::<Value>())?;
        let nesting = nest(items.iter())?;
        Ok(Value::List(Rc::new(List { items, is_tuple, nesting })))
    }
    /// Equal keys keep the first place and take the last value, as in Python.
    pub fn dict(pairs: Vec<(Value, Value)>) -> R<Value> {
        let mut items: Vec<(Value, Value)> = Vec::with_capacity(pairs.len());
        for (k, v) in pairs {
            match find(&items, &k)? {
                Some(i) => items[i].1 = v,
                None => items.push((k, v)),
            }
        }
        Value::dict_of_distinct(items)
    }
    pub fn dict_of_distinct(items: Vec<(Value, Value)>) -> R<Value> {
        spend_bytes(48 + items.len() * 2 * std::mem::size_of::<Value>())?;
        let nesting = nest(items.iter().map(|x| &x.1))?;
        Ok(Value::Dict(Rc::new(Dict { items, nesting })))
    }
    pub fn undefined(words: impl AsRef<str>) -> Value {
        Value::Undefined(words.as_ref().into())
    }
    pub fn is_undefined(&self) -> bool {
        matches!(self, Value::Undefined(_))
    }
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Str(t) => Some(t.as_str()),
            _ => None,
        }
    }
    pub fn as_int(&self) -> Option<i128> {
        match self {
            Value::Int(i) => Some(*i),
            Value::Bool(b) => Some(*b as i128),
            _ => None,
        }
    }
    pub fn as_float(&self) -> Option<f64> {
        match self {
            Value::Float(f) => Some(*f),
            _ => self.as_int().map(|i| i as f64),
        }
    }
    pub fn is_true(&self) -> bool {
        match self {
            Value::Undefined(_) | Value::None => false,
            Value::Bool(b) => *b,
            Value::Int(i) => *i != 0,
            Value::Float(f) => *f != 0.0,
            Value::Str(t) => t.len() > 0,
            Value::List(l) => !l.items.is_empty(),
            Value::Dict(d) => !d.items.is_empty(),
            _ => true,
        }
    }
    /// The word Python uses for the type in its messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Undefined(_) => "Undefined",
            Value::None => "NoneType",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Str(_) => "str",
            Value::List(l) if l.is_tuple => "tuple",
            Value::List(_) => "list",
            Value::Dict(_) => "dict",
            Value::Namespace(_) => "Namespace",
            Value::Loop(_) => "LoopContext",
            Value::Macro(..) => "Macro",
            Value::Global(_) | Value::Method(_) => "function",
        }
    }
    pub fn must_be_defined(&self) -> R<()> {
        match self {
            Value::Undefined(words) => runtime(words.to_string()),
            _ => Ok(()),
        }
    }
    /// What a loop over the value visits.
    pub fn iterate(&self) -> R<Vec<Value>> {
        let items = match self {
            Value::Undefined(_) => vec![],
            Value::List(l) => l.items.clone(),
            Value::Dict(d) => d.items.iter().map(|x| x.0.clone()).collect(),
            Value::Str(t) => {
                let mut v = vec![];
                for (at, c) in t.as_str().char_indices() {
                    spend_steps(1)?;
                    v.push(Value::Str(t.cut(at, at + c.len_utf8())?));
                }
                v
            }
            _ => return runtime(format!("'{}' object is not iterable", self.type_name())),
        };
        spend_bytes(items.len() * std::mem::size_of::<Value>())?;
        Ok(items)
    }
    pub fn len(&self) -> R<usize> {
        match self {
            Value::Undefined(_) => Ok(0),
            Value::Str(t) => {
                crate::fail::spend_scan(t.len())?;
                Ok(t.as_str().chars().count())
            }
            Value::List(l) => Ok(l.items.len()),
            Value::Dict(d) => Ok(d.items.len()),
            _ => runtime(format!("object of type '{}' has no len()", self.type_name())),
        }
    }
    pub fn dict_get(&self, key: &Value) -> R<Option<Value>> {
        let Value::Dict(d) = self else { return Ok(None) };
        Ok(find(&d.items, key)?.map(|i| d.items[i].1.clone()))
    }
    pub fn to_text(&self) -> R<Text> {
        if let Value::Str(t) = self {
            return Ok(t.clone());
        }
        let mut b = Builder::default();
        print(&mut b, self)?;
        Ok(b.finish())
    }
}

/// Python's `==`. Pays for what it reads: values that share parts can be exponentially larger than their memory.
pub fn equal(a: &Value, b: &Value) -> R<bool> {
    Ok(match (a, b) {
        (Value::Undefined(_), Value::Undefined(_)) | (Value::None, Value::None) => true,
        (Value::Str(x), Value::Str(y)) => {
            if x.len() != y.len() {
                return Ok(false);
            }
            spend_steps(x.len() / 64)?;
            x.as_str() == y.as_str()
        }
        (Value::List(x), Value::List(y)) => {
            if x.is_tuple != y.is_tuple || x.items.len() != y.items.len() {
                return Ok(false);
            }
            if Rc::ptr_eq(x, y) {
                return Ok(true);
            }
            for (p, q) in x.items.iter().zip(&y.items) {
                spend_steps(1)?;
                if !equal(p, q)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Dict(x), Value::Dict(y)) => {
            if x.items.len() != y.items.len() {
                return Ok(false);
            }
            for (k, v) in &x.items {
                match b.dict_get(k)? {
                    Some(w) if equal(v, &w)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        (Value::Namespace(x), Value::Namespace(y)) => x == y,
        (Value::Macro(x, _), Value::Macro(y, _)) => x == y,
        _ => match (a.as_int(), b.as_int()) {
            (Some(x), Some(y)) => x == y,
            _ => matches!((a.as_float(), b.as_float()), (Some(x), Some(y)) if x == y),
        },
    })
}

fn find(items: &[(Value, Value)], key: &Value) -> R<Option<usize>> {
    spend_steps(1 + items.len() / 4)?;
    for (i, x) in items.iter().enumerate() {
        if equal(&x.0, key)? {
            return Ok(Some(i));
        }
    }
    Ok(None)
}

pub fn order(a: &Value, b: &Value) -> R<Ordering> {
    spend_steps(1)?;
    match (a, b) {
        (Value::Str(x), Value::Str(y)) => {
            spend_steps(x.len().min(y.len()) / 64)?;
            return Ok(x.as_str().cmp(y.as_str()));
        }
        (Value::List(x), Value::List(y)) => {
            for (p, q) in x.items.iter().zip(&y.items) {
                let o = if equal(p, q)? { Ordering::Equal } else { order(p, q)? };
                if o != Ordering::Equal {
                    return Ok(o);
                }
            }
            return Ok(x.items.len().cmp(&y.items.len()));
        }
        _ => {}
    }
    if let (Some(x), Some(y)) = (a.as_int(), b.as_int()) {
        return Ok(x.cmp(&y));
    }
    if let (Some(x), Some(y)) = (a.as_float(), b.as_float()) {
        return Ok(x.partial_cmp(&y).unwrap_or(Ordering::Equal));
    }
    a.must_be_defined()?;
    b.must_be_defined()?;
    runtime(format!("'{}' and '{}' cannot be ordered", a.type_name(), b.type_name()))
}

/// Python's `str(value)`.
pub fn print(b: &mut Builder, v: &Value) -> R<()> {
    match v {
        Value::Undefined(_) => Ok(()),
        Value::Str(t) => b.push_text(t),
        _ => repr(b, v),
    }
}

/// Python's `repr(value)`.
pub fn repr(b: &mut Builder, v: &Value) -> R<()> {
    spend_steps(1)?;
    match v {
        Value::Undefined(_) => b.push("Undefined", false),
        Value::None => b.push("None", false),
        Value::Bool(x) => b.push(if *x { "True" } else { "False" }, false),
        Value::Int(i) => b.push(&i.to_string(), false),
        Value::Float(f) => b.push(&float_text(*f), false),
        Value::Str(t) => repr_str(b, t),
        Value::List(l) => {
            b.push(if l.is_tuple { "(" } else { "[" }, false)?;
            for (i, x) in l.items.iter().enumerate() {
                if i > 0 {
                    b.push(", ", false)?;
                }
                repr(b, x)?;
            }
            let close = match (l.is_tuple, l.items.len()) {
                (true, 1) => ",)",
                (true, _) => ")",
                _ => "]",
            };
            b.push(close, false)
        }
        Value::Dict(d) => {
            b.push("{", false)?;
            for (i, (k, x)) in d.items.iter().enumerate() {
                if i > 0 {
                    b.push(", ", false)?;
                }
                repr(b, k)?;
                b.push(": ", false)?;
                repr(b, x)?;
            }
            b.push("}", false)
        }
        _ => b.push(&format!("<{}>", v.type_name()), false),
    }
}

fn repr_str(b: &mut Builder, t: &Text) -> R<()> {
    let s = t.as_str();
    let quote = if s.contains('\'') && !s.contains('"') { '"' } else { '\'' };
    b.push_char(quote, false)?;
    for (at, c) in s.char_indices() {
        let user = t.is_user(at);
        match c {
            '\\' => b.push("\\\\", user)?,
            '\n' => b.push("\\n", user)?,
            '\r' => b.push("\\r", user)?,
            '\t' => b.push("\\t", user)?,
            c if c == quote => b.push(&format!("\\{c}"), user)?,
            c if (c as u32) < 0x20 || (0x7f..0xa1).contains(&(c as u32)) || c == '\u{ad}' => {
                b.push(&format!("\\x{:02x}", c as u32), user)?
            }
            c => b.push_char(c, user)?,
        }
    }
    b.push_char(quote, false)
}

/// Shortest digits that read back, in Python's layout.
pub fn float_text(f: f64) -> String {
    if f.is_nan() {
        return "nan".into();
    }
    if f.is_infinite() {
        return if f > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let e = format!("{f:e}");
    let (mantissa, exponent) = e.split_once('e').unwrap_or((&e, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if f != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{f}");
    if plain.contains('.') {
        plain
    } else {
        plain + ".0"
    }
}
