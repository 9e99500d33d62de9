//! jinja2's tests: what may stand after `is`.

use crate::ast::Op;
use crate::fail::{fail, runtime, Kind, R};
use crate::ops;
use crate::value::{equal, Value};

pub fn call(name: &str, v: &Value, args: &[Value]) -> R<bool> {
    let arg = || match args.first() {
        Some(x) => Ok(x),
        None => runtime(format!("test '{name}' needs an argument")),
    };
    let compare = |op: Op| Ok(ops::binary(op, v, arg()?)?.is_true());
    let int = || match v.as_int() {
        Some(i) => Ok(i),
        None => runtime(format!("test '{name}' needs an integer, not {}", v.type_name())),
    };
    match name {
        "defined" => Ok(!v.is_undefined()),
        "undefined" => Ok(v.is_undefined()),
        "none" => Ok(matches!(v, Value::None)),
        "boolean" => Ok(matches!(v, Value::Bool(_))),
        "true" => Ok(matches!(v, Value::Bool(true))),
        "false" => Ok(matches!(v, Value::Bool(false))),
        "integer" => Ok(matches!(v, Value::Int(_))),
        "float" => Ok(matches!(v, Value::Float(_))),
        "number" => Ok(v.as_float().is_some()),
        "string" => Ok(matches!(v, Value::Str(_))),
        "mapping" => Ok(matches!(v, Value::Dict(_))),
        "iterable" | "sequence" => {
            Ok(matches!(v, Value::Undefined(_) | Value::Str(_) | Value::List(_) | Value::Dict(_)))
        }
        "callable" => Ok(matches!(v, Value::Macro(..) | Value::Global(_) | Value::Method(_) | Value::Undefined(_))),
        "sameas" => Ok(v.type_name() == arg()?.type_name() && equal(v, arg()?)?),
        "escaped" => Ok(false),
        "odd" => Ok(int()?.rem_euclid(2) == 1),
        "even" => Ok(int()?.rem_euclid(2) == 0),
        "divisibleby" => match (int()?, arg()?.as_int()) {
            (_, None | Some(0)) => runtime("test 'divisibleby' needs an integer that is not zero"),
            (a, Some(b)) => Ok(a.checked_rem(b).unwrap_or(0) == 0),
        },
        "lower" | "upper" => {
            let t = v.to_text()?;
            crate::fail::spend_chars(t.len())?;
            let (mut any, mut all) = (false, true);
            for c in t.as_str().chars().filter(|c| c.is_alphabetic()) {
                any = true;
                all &= if name == "lower" { !c.is_uppercase() } else { !c.is_lowercase() };
            }
            Ok(any && all)
        }
        "eq" | "equalto" | "==" => compare(Op::Eq),
        "ne" | "!=" => compare(Op::Ne),
        "lt" | "lessthan" | "<" => compare(Op::Lt),
        "le" | "<=" => compare(Op::Lte),
        "gt" | "greaterthan" | ">" => compare(Op::Gt),
        "ge" | ">=" => compare(Op::Gte),
        "in" => compare(Op::In),
        _ => fail(Kind::Runtime, format!("no test named '{name}'")),
    }
}
