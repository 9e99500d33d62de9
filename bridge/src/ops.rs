//! Operators, subscripts and slices with Python's meaning.

use crate::ast::Op;
use crate::fail::{fail, runtime, spend_bytes, spend_scan, spend_steps, Kind, R};
use crate::format;
use crate::text::Builder;
use crate::value::{equal, order, Value};
use std::cmp::Ordering;

fn unsupported(sign: &str, a: &Value, b: &Value) -> R<Value> {
    a.must_be_defined()?;
    b.must_be_defined()?;
    if sign == "+" && matches!(a, Value::Str(_)) {
        return runtime(format!("can only concatenate str (not \"{}\") to str", b.type_name()));
    }
    runtime(format!("unsupported operand types for {sign}: '{}' and '{}'", a.type_name(), b.type_name()))
}

fn int(v: Option<i128>) -> R<Value> {
    match v {
        Some(i) => Ok(Value::Int(i)),
        None => fail(Kind::Limit, "an integer is too large"),
    }
}

pub fn binary(op: Op, a: &Value, b: &Value) -> R<Value> {
    match op {
        Op::Eq => return Ok(Value::Bool(equal(a, b)?)),
        Op::Ne => return Ok(Value::Bool(!equal(a, b)?)),
        Op::Lt => return Ok(Value::Bool(order(a, b)? == Ordering::Less)),
        Op::Lte => return Ok(Value::Bool(order(a, b)? != Ordering::Greater)),
        Op::Gt => return Ok(Value::Bool(order(a, b)? == Ordering::Greater)),
        Op::Gte => return Ok(Value::Bool(order(a, b)? != Ordering::Less)),
        Op::In => return Ok(Value::Bool(contains(b, a)?)),
        Op::NotIn => return Ok(Value::Bool(!contains(b, a)?)),
        Op::Concat => return concat(a, b),
        _ => {}
    }
    match (op, a, b) {
        (Op::Add, Value::Str(_), Value::Str(_)) => return concat(a, b),
        (Op::Add, Value::List(x), Value::List(y)) if x.is_tuple == y.is_tuple => {
            spend_bytes((x.items.len() + y.items.len()) * std::mem::size_of::<Value>())?;
            let items = x.items.iter().chain(&y.items).cloned().collect();
            return if x.is_tuple { Value::tuple(items) } else { Value::list(items) };
        }
        (Op::Mul, Value::Str(_) | Value::List(_), n) if n.as_int().is_some() => return repeat(a, n),
        (Op::Mul, n, Value::Str(_) | Value::List(_)) if n.as_int().is_some() => return repeat(b, n),
        (Op::Rem, Value::Str(t), _) => return format::percent(t, b),
        _ => {}
    }
    if let (Some(x), Some(y)) = (a.as_int(), b.as_int()) {
        return int_binary(op, x, y);
    }
    if let (Some(x), Some(y)) = (a.as_float(), b.as_float()) {
        return float_binary(op, x, y);
    }
    unsupported(sign(op), a, b)
}

fn sign(op: Op) -> &'static str {
    match op {
        Op::Add => "+",
        Op::Sub => "-",
        Op::Mul => "*",
        Op::Div => "/",
        Op::FloorDiv => "//",
        Op::Rem => "%",
        _ => "**",
    }
}

fn int_binary(op: Op, x: i128, y: i128) -> R<Value> {
    if y == 0 && matches!(op, Op::Div | Op::FloorDiv | Op::Rem) {
        return runtime("division by zero");
    }
    match op {
        Op::Add => int(x.checked_add(y)),
        Op::Sub => int(x.checked_sub(y)),
        Op::Mul => int(x.checked_mul(y)),
        Op::Div => Ok(Value::Float(x as f64 / y as f64)),
        Op::FloorDiv => int(x.checked_div(y).map(|q| if x % y != 0 && (x < 0) != (y < 0) { q - 1 } else { q })),
        Op::Rem => int(x.checked_rem(y).map(|r| if r != 0 && (r < 0) != (y < 0) { r + y } else { r })),
        _ if y < 0 => Ok(Value::Float((x as f64).powf(y as f64))),
        _ => int(u32::try_from(y).ok().and_then(|e| x.checked_pow(e))),
    }
}

fn float_binary(op: Op, x: f64, y: f64) -> R<Value> {
    if y == 0.0 && matches!(op, Op::Div | Op::FloorDiv | Op::Rem) {
        return runtime("float division by zero");
    }
    Ok(Value::Float(match op {
        Op::Add => x + y,
        Op::Sub => x - y,
        Op::Mul => x * y,
        Op::Div => x / y,
        Op::FloorDiv => (x / y).floor(),
        Op::Rem => x - y * (x / y).floor(),
        _ => x.powf(y),
    }))
}

fn concat(a: &Value, b: &Value) -> R<Value> {
    let mut out = Builder::default();
    crate::value::print(&mut out, a)?;
    crate::value::print(&mut out, b)?;
    Ok(Value::Str(out.finish()))
}

fn repeat(what: &Value, n: &Value) -> R<Value> {
    let n = n.as_int().unwrap_or(0).clamp(0, usize::MAX as i128) as usize;
    match what {
        Value::Str(t) => {
            spend_bytes(t.len().saturating_mul(n))?;
            if t.len() == 0 {
                return Ok(what.clone());
            }
            let mut out = Builder::default();
            // Whole kibibytes at a time, so that a short text repeated often is not one call per copy.
            let n_in_piece = (1024 / t.len()).clamp(1, n.max(1));
            for _ in 0..if n >= n_in_piece { n_in_piece } else { 0 } {
                out.push_text(t)?;
            }
            let piece = out.finish();
            let mut out = Builder::default();
            for _ in 0..n / n_in_piece {
                out.push_text(&piece)?;
            }
            for _ in 0..n % n_in_piece {
                out.push_text(t)?;
            }
            Ok(Value::Str(out.finish()))
        }
        Value::List(l) => {
            let n_items = l.items.len().saturating_mul(n);
            spend_bytes(n_items.saturating_mul(std::mem::size_of::<Value>()))?;
            Value::list(l.items.iter().cycle().take(n_items).cloned().collect())
        }
        _ => unsupported("*", what, &Value::Int(n as i128)),
    }
}

pub fn contains(container: &Value, item: &Value) -> R<bool> {
    match (container, item) {
        (Value::Str(s), Value::Str(t)) => {
            spend_scan(s.len())?;
            Ok(s.as_str().contains(t.as_str()))
        }
        (Value::Str(_), Value::Undefined(words)) => runtime(words.to_string()),
        (Value::Str(_), _) => {
            runtime(format!("'in <string>' requires string as left operand, not {}", item.type_name()))
        }
        (Value::List(l), _) => {
            for x in &l.items {
                spend_steps(1)?;
                if equal(x, item)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        (Value::Dict(_), _) => Ok(container.dict_get(item)?.is_some()),
        (Value::Undefined(_), _) => Ok(false),
        _ => runtime(format!("argument of type '{}' is not iterable", container.type_name())),
    }
}

pub fn negate(v: &Value) -> R<Value> {
    v.must_be_defined()?;
    match (v, v.as_int()) {
        (Value::Float(f), _) => Ok(Value::Float(-f)),
        (_, Some(i)) => int(i.checked_neg()),
        _ => runtime(format!("bad operand type for unary -: '{}'", v.type_name())),
    }
}

/// Item idx of a list or text, counted from the end if negative.
pub fn at(v: &Value, idx: i128) -> R<Option<Value>> {
    let n = v.len()? as i128;
    let i = if idx < 0 { idx + n } else { idx };
    if i < 0 || i >= n {
        return Ok(None);
    }
    match v {
        Value::List(l) => Ok(l.items.get(i as usize).cloned()),
        Value::Str(t) => {
            let found = t.as_str().char_indices().nth(i as usize);
            found.map(|(at, c)| Ok(Value::Str(t.cut(at, at + c.len_utf8())?))).transpose()
        }
        _ => Ok(None),
    }
}

fn bound(v: &Option<Value>) -> R<Option<i128>> {
    match v {
        None | Some(Value::None) => Ok(None),
        Some(x) => match x.as_int() {
            Some(i) => Ok(Some(i.clamp(-(1 << 62), 1 << 62))),
            None => runtime("slice indices must be integers or None"),
        },
    }
}

pub fn slice(v: &Value, bounds: &[Option<Value>; 3]) -> R<Value> {
    v.must_be_defined()?;
    if !matches!(v, Value::List(_) | Value::Str(_)) {
        return runtime(format!("'{}' object cannot be sliced", v.type_name()));
    }
    let step = bound(&bounds[2])?.unwrap_or(1);
    if step == 0 {
        return runtime("slice step cannot be zero");
    }
    let n = v.len()? as i128;
    let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
    let fit = |b: Option<i128>, default: i128| match b {
        None => default,
        Some(i) => (if i < 0 { i + n } else { i }).clamp(low, high),
    };
    let from = fit(bound(&bounds[0])?, if step > 0 { low } else { high });
    let to = fit(bound(&bounds[1])?, if step > 0 { high } else { low });
    let mut places = vec![];
    let mut i = from;
    while if step > 0 { i < to } else { i > to } {
        spend_steps((places.len() % 16 == 0) as usize)?;
        places.push(i as usize);
        i += step;
    }
    match v {
        Value::List(l) => {
            let items = places.iter().map(|&p| l.items[p].clone()).collect();
            if l.is_tuple { Value::tuple(items) } else { Value::list(items) }
        }
        Value::Str(t) => {
            let mut offs: Vec<usize> = t.as_str().char_indices().map(|x| x.0).collect();
            spend_bytes(offs.len() * 8)?;
            offs.push(t.len());
            if step == 1 {
                let to = to.max(from);
                return Ok(Value::Str(t.cut(offs[from as usize], offs[to as usize])?));
            }
            let mut out = Builder::default();
            for p in places {
                out.push_cut(t, offs[p], offs[p + 1])?;
            }
            Ok(Value::Str(out.finish()))
        }
        _ => Ok(Value::None),
    }
}
