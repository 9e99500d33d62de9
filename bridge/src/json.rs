//! JSON to values and back, the latter as Python's json.dumps writes it.

use crate::fail::{runtime, spend_steps, R};
use crate::text::{Builder, Text};
use crate::value::{float_text, Value};

/// Every text of the request, keys too, is the user's.
pub fn to_value(j: &serde_json::Value) -> R<Value> {
    spend_steps(1)?;
    Ok(match j {
        serde_json::Value::Null => Value::None,
        serde_json::Value::Bool(b) => Value::Bool(*b),
        serde_json::Value::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(i), _) => Value::Int(i as i128),
            (_, Some(u)) => Value::Int(u as i128),
            _ => Value::Float(n.as_f64().unwrap_or(0.0)),
        },
        serde_json::Value::String(s) => Value::Str(Text::from_user(s)),
        serde_json::Value::Array(a) => Value::list(a.iter().map(to_value).collect::<R<_>>()?)?,
        serde_json::Value::Object(o) => Value::dict_of_distinct(
            o.iter().map(|(k, v)| Ok((Value::Str(Text::from_user(k)), to_value(v)?))).collect::<R<_>>()?,
        )?,
    })
}

pub struct Dumps {
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub ensure_ascii: bool,
    pub sort_keys: bool,
}

impl Default for Dumps {
    fn default() -> Dumps {
        Dumps {
            indent: None,
            item_separator: ", ".into(),
            key_separator: ": ".into(),
            ensure_ascii: false,
            sort_keys: false,
        }
    }
}

pub fn dumps(b: &mut Builder, v: &Value, how: &Dumps, level: usize) -> R<()> {
    spend_steps(1)?;
    match v {
        Value::None => b.push("null", false),
        Value::Bool(x) => b.push(if *x { "true" } else { "false" }, false),
        Value::Int(i) => b.push(&i.to_string(), false),
        Value::Float(f) if f.is_nan() => b.push("NaN", false),
        Value::Float(f) if f.is_infinite() => b.push(if *f > 0.0 { "Infinity" } else { "-Infinity" }, false),
        Value::Float(f) => b.push(&float_text(*f), false),
        Value::Str(t) => dump_str(b, t, how.ensure_ascii),
        Value::List(l) => {
            b.push("[", false)?;
            for (i, x) in l.items.iter().enumerate() {
                break_line(b, how, level + 1, i > 0)?;
                dumps(b, x, how, level + 1)?;
            }
            close(b, how, level, l.items.is_empty(), "]")
        }
        Value::Dict(d) => {
            let mut items: Vec<&(Value, Value)> = d.items.iter().collect();
            if how.sort_keys {
                spend_steps(items.len() * 8)?;
                items.sort_by(|x, y| x.0.as_str().cmp(&y.0.as_str()));
            }
            b.push("{", false)?;
            for (i, (k, x)) in items.into_iter().enumerate() {
                break_line(b, how, level + 1, i > 0)?;
                dump_key(b, k, how)?;
                b.push(&how.key_separator, false)?;
                dumps(b, x, how, level + 1)?;
            }
            close(b, how, level, d.items.is_empty(), "}")
        }
        _ => runtime(format!("Object of type {} is not JSON serializable", v.type_name())),
    }
}

fn dump_key(b: &mut Builder, k: &Value, how: &Dumps) -> R<()> {
    match k {
        Value::Str(t) => dump_str(b, t, how.ensure_ascii),
        Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
            b.push("\"", false)?;
            dumps(b, k, how, 0)?;
            b.push("\"", false)
        }
        _ => runtime("keys must be str, int, float, bool or None"),
    }
}

fn break_line(b: &mut Builder, how: &Dumps, level: usize, is_later: bool) -> R<()> {
    if is_later {
        b.push(&how.item_separator, false)?;
    }
    if let Some(indent) = &how.indent {
        b.push("\n", false)?;
        for _ in 0..level {
            b.push(indent, false)?;
        }
    }
    Ok(())
}

fn close(b: &mut Builder, how: &Dumps, level: usize, is_empty: bool, bracket: &str) -> R<()> {
    if !is_empty {
        break_line(b, how, level, false)?;
    }
    b.push(bracket, false)
}

fn dump_str(b: &mut Builder, t: &Text, ensure_ascii: bool) -> R<()> {
    b.push("\"", false)?;
    for (at, c) in t.as_str().char_indices() {
        let user = t.is_user(at);
        match c {
            '"' => b.push("\\\"", user)?,
            '\\' => b.push("\\\\", user)?,
            '\n' => b.push("\\n", user)?,
            '\r' => b.push("\\r", user)?,
            '\t' => b.push("\\t", user)?,
            '\u{8}' => b.push("\\b", user)?,
            '\u{c}' => b.push("\\f", user)?,
            c if (c as u32) < 0x20 || (ensure_ascii && !(' '..='~').contains(&c)) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    b.push(&format!("\\u{unit:04x}"), user)?;
                }
            }
            c => b.push_char(c, user)?,
        }
    }
    b.push("\"", false)
}
