//! jinja2's filters, with tojson as transformers defines it.

use crate::eval::{Args, Eval};
use crate::fail::{fail, runtime, spend_bytes, spend_steps, Kind, R};
use crate::json::{dumps, Dumps};
use crate::methods::{self, capitalize, join, replace, strip};
use crate::predicates;
use crate::text::{Builder, Text};
use crate::value::{equal, order, Value};
use std::cmp::Ordering;

pub fn call(ev: &mut Eval, name: &str, v: Value, args: Args) -> R<Value> {
    match name {
        "trim" | "upper" | "lower" | "title" | "capitalize" | "replace" | "string" | "escape" | "e" | "forceescape"
        | "indent" | "center" | "wordcount" | "truncate" | "urlencode" | "safe" | "format" => of_text(name, v, &args),
        "default" | "d" => {
            let is_used = v.is_undefined() || (args.get(1, "boolean").is_some_and(|b| b.is_true()) && !v.is_true());
            Ok(if is_used { args.get(0, "default_value").unwrap_or(Value::Str(Text::new(""))) } else { v })
        }
        "tojson" => tojson(&v, &args),
        "length" | "count" => Ok(Value::Int(v.len()? as i128)),
        "int" | "float" | "abs" | "round" => of_number(name, &v, &args),
        "attr" => {
            let path = args.get(0, "name").unwrap_or(Value::None);
            ev.attr(&v, path.as_str().unwrap_or(""))
        }
        "items" => match &v {
            Value::Undefined(_) => Value::list(vec![]),
            Value::Dict(_) => methods::call(&v, "items", Args::default()),
            _ => runtime("Can only get item pairs from a mapping."),
        },
        "dictsort" => dictsort(&v, &args),
        "map" => map(ev, &v, args),
        "select" | "reject" | "selectattr" | "rejectattr" => select(ev, name, &v, &args),
        "groupby" => groupby(ev, &v, &args),
        "sort" | "unique" | "min" | "max" | "sum" => of_items(ev, name, &v, &args),
        "join" => {
            let mut items = v.iterate()?;
            if let Some(path) = args.get(1, "attribute") {
                items = items.iter().map(|x| ev.path(x, &path, None)).collect::<R<_>>()?;
            }
            let sep = args.get(0, "d").unwrap_or(Value::Str(Text::new(""))).to_text()?;
            join(&sep, &items)
        }
        "first" | "last" => {
            let mut items = v.iterate()?;
            let found = if name == "first" { items.drain(..).next() } else { items.pop() };
            Ok(found.unwrap_or_else(|| Value::undefined("No first or last item, sequence was empty.")))
        }
        "list" => Value::list(v.iterate()?),
        "reverse" => match &v {
            Value::Str(t) => {
                let mut b = Builder::default();
                for (at, c) in t.as_str().char_indices().rev() {
                    b.push_char(c, t.is_user(at))?;
                }
                Ok(Value::Str(b.finish()))
            }
            _ => {
                let mut items = v.iterate()?;
                items.reverse();
                Value::list(items)
            }
        },
        "batch" | "slice" => batch(name, &v, &args),
        _ => fail(Kind::Runtime, format!("no filter named '{name}'")),
    }
}

fn of_text(name: &str, v: Value, args: &Args) -> R<Value> {
    if name == "format" {
        let named = Value::dict(args.named.iter().map(|(k, v)| (Value::Str(Text::new(k)), v.clone())).collect())?;
        return crate::format::percent_args(&v.to_text()?, &args.pos, Some(&named));
    }
    let t = v.to_text()?;
    crate::fail::spend_chars(t.len())?;
    let text_of = |place: usize, name: &str| args.get(place, name).unwrap_or(Value::Str(Text::new(""))).to_text();
    let int_of = |place: usize, name: &str, default: i128| {
        args.get(place, name).and_then(|v| v.as_int()).unwrap_or(default)
    };
    Ok(Value::Str(match name {
        "trim" => match args.get(0, "chars") {
            None | Some(Value::None) => strip(&t, None, true, true)?,
            Some(chars) => strip(&t, Some(chars.to_text()?.as_str()), true, true)?,
        },
        "upper" => t.map_chars(|c, out| out.extend(c.to_uppercase()))?,
        "lower" => t.map_chars(|c, out| out.extend(c.to_lowercase()))?,
        "title" => title(&t)?,
        "capitalize" => capitalize(&t)?,
        "replace" => {
            let max = int_of(2, "count", -1);
            replace(&t, &text_of(0, "old")?, &text_of(1, "new")?, if max < 0 { usize::MAX } else { max as usize })?
        }
        "escape" | "e" | "forceescape" => t.map_chars(|c, out| match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        })?,
        "indent" => indent(&t, args)?,
        "center" => methods::pad(&t, int_of(0, "width", 80), ' ', methods::Side::Both)?,
        "wordcount" => {
            let words = t.as_str().split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty());
            return Ok(Value::Int(words.count() as i128));
        }
        "truncate" => truncate(&t, args)?,
        "urlencode" => t.map_chars(|c, out| {
            if c.is_ascii_alphanumeric() || "_.-~/".contains(c) {
                return out.push(c);
            }
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                out.push_str(&format!("%{byte:02X}"));
            }
        })?,
        _ => t, // string, safe
    }))
}

/// Unlike str.title, an apostrophe or a digit begins no new word.
fn title(t: &Text) -> R<Text> {
    let mut in_word = false;
    t.map_chars(|c, out| {
        if in_word { out.extend(c.to_lowercase()) } else { out.extend(c.to_uppercase()) }
        in_word = !(c.is_whitespace() || "-({[<".contains(c));
    })
}

fn indent(t: &Text, args: &Args) -> R<Text> {
    let by = match args.get(0, "width") {
        Some(Value::Str(s)) => s,
        other => {
            let n = other.and_then(|v| v.as_int()).unwrap_or(4).clamp(0, 10_000) as usize;
            Text::new(&" ".repeat(n))
        }
    };
    let first = args.get(1, "first").is_some_and(|v| v.is_true());
    let blank = args.get(2, "blank").is_some_and(|v| v.is_true());
    let mut b = Builder::default();
    let mut at = 0;
    for (i, line) in t.as_str().split('\n').enumerate() {
        if i > 0 {
            b.push_cut(t, at - 1, at)?;
        }
        if if i == 0 { first } else { blank || !line.is_empty() } {
            b.push_text(&by)?;
        }
        b.push_cut(t, at, at + line.len())?;
        at += line.len() + 1;
    }
    Ok(b.finish())
}

fn truncate(t: &Text, args: &Args) -> R<Text> {
    let n = args.get(0, "length").and_then(|v| v.as_int()).unwrap_or(255).max(0) as usize;
    let kill_words = args.get(1, "killwords").is_some_and(|v| v.is_true());
    let end = args.get(2, "end").unwrap_or(Value::Str(Text::new("..."))).to_text()?;
    let leeway = args.get(3, "leeway").and_then(|v| v.as_int()).unwrap_or(5).max(0) as usize;
    let s = t.as_str();
    if s.chars().count() <= n + leeway {
        return Ok(t.clone());
    }
    let keep = n.saturating_sub(end.as_str().chars().count());
    let mut to = s.char_indices().nth(keep).map_or(s.len(), |x| x.0);
    if !kill_words {
        to = s[..to].rfind(' ').unwrap_or(to);
    }
    let mut b = Builder::default();
    b.push_cut(t, 0, to)?;
    b.push_text(&end)?;
    Ok(b.finish())
}

fn tojson(v: &Value, args: &Args) -> R<Value> {
    let mut how = Dumps::default();
    // transformers: tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False)
    how.ensure_ascii = args.get(0, "ensure_ascii").is_some_and(|x| x.is_true());
    how.indent = match args.get(1, "indent") {
        None | Some(Value::None) => None,
        Some(Value::Str(s)) => Some(s.as_str().to_owned()),
        Some(n) => Some(" ".repeat(n.as_int().unwrap_or(0).clamp(0, 1000) as usize)),
    };
    if how.indent.is_some() {
        how.item_separator = ",".into();
    }
    if let Some(Value::List(l)) = args.get(2, "separators") {
        if let [Value::Str(item), Value::Str(key)] = &l.items[..] {
            how.item_separator = item.as_str().to_owned();
            how.key_separator = key.as_str().to_owned();
        }
    }
    how.sort_keys = args.get(3, "sort_keys").is_some_and(|x| x.is_true());
    let mut b = Builder::default();
    dumps(&mut b, v, &how, 0)?;
    Ok(Value::Str(b.finish()))
}

fn of_number(name: &str, v: &Value, args: &Args) -> R<Value> {
    if let Value::Str(t) = v {
        crate::fail::spend_chars(t.len())?;
    }
    match name {
        "int" => {
            let default = args.get(0, "default").unwrap_or(Value::Int(0));
            let base = args.get(1, "base").and_then(|b| b.as_int()).unwrap_or(10).clamp(2, 36) as u32;
            Ok(match v {
                Value::Str(t) => {
                    let s = t.as_str().trim();
                    let int = i128::from_str_radix(s, base).ok();
                    let int = int.or_else(|| s.parse::<f64>().ok().filter(|f| f.is_finite()).map(|f| f as i128));
                    int.map_or(default, Value::Int)
                }
                Value::Float(f) if f.is_finite() => Value::Int(*f as i128),
                _ => v.as_int().map_or(default, Value::Int),
            })
        }
        "float" => {
            let parsed = match v {
                Value::Str(t) => t.as_str().trim().parse::<f64>().ok(),
                _ => v.as_float(),
            };
            Ok(parsed.map_or(args.get(0, "default").unwrap_or(Value::Float(0.0)), Value::Float))
        }
        "abs" => match (v, v.as_int()) {
            (Value::Float(f), _) => Ok(Value::Float(f.abs())),
            (_, Some(i)) => Ok(Value::Int(i.saturating_abs())),
            _ => runtime(format!("bad operand type for abs(): '{}'", v.type_name())),
        },
        _ => {
            let Some(f) = v.as_float() else { return runtime(format!("round() needs a number, not {}", v.type_name())) };
            let precision = args.get(0, "precision").and_then(|p| p.as_int()).unwrap_or(0).clamp(-300, 300) as i32;
            let method = args.get(1, "method");
            let scale = 10f64.powi(precision);
            let scaled = f * scale;
            let rounded = match method.as_ref().and_then(|m| m.as_str()).unwrap_or("common") {
                "ceil" => scaled.ceil(),
                "floor" => scaled.floor(),
                _ => scaled.round_ties_even(),
            };
            Ok(Value::Float(rounded / scale))
        }
    }
}

fn sort_values(items: &mut Vec<(Value, Value)>, ignore_case: bool, reverse: bool) -> R<()> {
    if ignore_case {
        for x in items.iter_mut() {
            if let Value::Str(t) = &x.0 {
                x.0 = Value::Str(t.map_chars(|c, out| out.extend(c.to_lowercase()))?);
            }
        }
    }
    let mut error = None;
    items.sort_by(|a, b| {
        if error.is_some() {
            return Ordering::Equal;
        }
        match order(&a.0, &b.0) {
            Ok(o) if reverse => o.reverse(),
            Ok(o) => o,
            Err(e) => {
                error = Some(e);
                Ordering::Equal
            }
        }
    });
    error.map_or(Ok(()), Err)
}

fn dictsort(v: &Value, args: &Args) -> R<Value> {
    let Value::Dict(d) = v else { return runtime(format!("dictsort needs a mapping, not {}", v.type_name())) };
    let case = args.get(0, "case_sensitive").is_some_and(|x| x.is_true());
    let by_value = args.get(1, "by").is_some_and(|x| x.as_str() == Some("value"));
    let reverse = args.get(2, "reverse").is_some_and(|x| x.is_true());
    let mut items = vec![];
    for (k, x) in &d.items {
        let key = if by_value { x.clone() } else { k.clone() };
        items.push((key, Value::tuple(vec![k.clone(), x.clone()])?));
    }
    sort_values(&mut items, !case, reverse)?;
    Value::list(items.into_iter().map(|x| x.1).collect())
}

fn map(ev: &mut Eval, v: &Value, mut args: Args) -> R<Value> {
    let items = v.iterate()?;
    if let Some(path) = args.get(usize::MAX, "attribute") {
        let default = args.get(usize::MAX, "default");
        return Value::list(items.iter().map(|x| ev.path(x, &path, default.as_ref())).collect::<R<_>>()?);
    }
    if args.pos.is_empty() {
        return runtime("map requires a filter argument");
    }
    let name = args.pos.remove(0).to_text()?;
    let mut out = vec![];
    for x in items {
        spend_steps(1)?;
        let again = Args { pos: args.pos.clone(), named: args.named.clone() };
        out.push(call(ev, name.as_str(), x, again)?);
    }
    Value::list(out)
}

fn select(ev: &mut Eval, name: &str, v: &Value, args: &Args) -> R<Value> {
    let by_attr = name.ends_with("attr");
    let wanted = name.starts_with("select");
    let test_at = by_attr as usize;
    if by_attr && args.pos.is_empty() {
        return runtime(format!("{name} requires an attribute"));
    }
    let mut out = vec![];
    for x in v.iterate()? {
        spend_steps(1)?;
        let seen = if by_attr { ev.path(&x, &args.pos[0], None)? } else { x.clone() };
        let is = match args.pos.get(test_at) {
            Some(test) => predicates::call(test.to_text()?.as_str(), &seen, &args.pos[test_at + 1..])?,
            None => seen.is_true(),
        };
        if is == wanted {
            out.push(x);
        }
    }
    Value::list(out)
}

fn groupby(ev: &mut Eval, v: &Value, args: &Args) -> R<Value> {
    let Some(path) = args.get(0, "attribute") else { return runtime("groupby requires an attribute") };
    let mut items = vec![];
    for x in v.iterate()? {
        items.push((ev.path(&x, &path, None)?, x));
    }
    let case = args.get(2, "case_sensitive").is_some_and(|x| x.is_true());
    sort_values(&mut items, !case, false)?;
    let mut groups: Vec<(Value, Vec<Value>)> = vec![];
    for (key, x) in items {
        match groups.last_mut() {
            Some(g) if equal(&g.0, &key)? => g.1.push(x),
            _ => groups.push((key, vec![x])),
        }
    }
    let pairs = groups.into_iter().map(|(k, g)| Value::tuple(vec![k, Value::list(g)?]));
    Value::list(pairs.collect::<R<_>>()?)
}

fn of_items(ev: &mut Eval, name: &str, v: &Value, args: &Args) -> R<Value> {
    let items = v.iterate()?;
    let place = match name {
        "sort" => 2,
        "sum" => 0,
        _ => 1,
    };
    let path = args.get(place, "attribute").filter(|p| !matches!(p, Value::None));
    let case = args.get(if name == "sort" { 1 } else { 0 }, "case_sensitive").is_some_and(|x| x.is_true());
    let mut keyed = vec![];
    spend_bytes(items.len() * 64)?;
    for x in items {
        let key = match &path {
            Some(p) => ev.path(&x, p, None)?,
            None => x.clone(),
        };
        keyed.push((key, x));
    }
    match name {
        "sum" => {
            let mut total = args.get(1, "start").unwrap_or(Value::Int(0));
            for (key, _) in keyed {
                total = crate::ops::binary(crate::ast::Op::Add, &total, &key)?;
            }
            Ok(total)
        }
        "unique" => {
            let mut seen: Vec<Value> = vec![];
            let mut out = vec![];
            for (key, x) in keyed {
                let key = match &key {
                    Value::Str(t) if !case => Value::Str(t.map_chars(|c, o| o.extend(c.to_lowercase()))?),
                    _ => key,
                };
                let mut is_old = false;
                for s in &seen {
                    spend_steps(1)?;
                    is_old = is_old || equal(s, &key)?;
                }
                if !is_old {
                    seen.push(key);
                    out.push(x);
                }
            }
            Value::list(out)
        }
        _ => {
            let reverse = if name == "sort" { args.get(0, "reverse").is_some_and(|x| x.is_true()) } else { name == "max" };
            sort_values(&mut keyed, !case, reverse)?;
            let mut sorted = keyed.into_iter().map(|x| x.1);
            match name {
                "sort" => Value::list(sorted.collect()),
                _ => Ok(sorted.next().unwrap_or_else(|| Value::undefined("No aggregated item, sequence was empty."))),
            }
        }
    }
}

fn batch(name: &str, v: &Value, args: &Args) -> R<Value> {
    let items = v.iterate()?;
    let Some(n) = args.pos.first().and_then(|x| x.as_int()).filter(|n| (1..=100_000).contains(n)) else {
        return runtime(format!("{name} needs a count of 1 to 100000"));
    };
    let n = n as usize;
    let fill = args.get(1, "fill_with").filter(|x| !matches!(x, Value::None));
    let mut groups = vec![];
    if name == "batch" {
        for part in items.chunks(n) {
            let mut group = part.to_vec();
            if let Some(fill) = &fill {
                group.resize(n, fill.clone());
            }
            groups.push(Value::list(group)?);
        }
    } else {
        let (each, extra) = (items.len() / n, items.len() % n);
        let mut at = 0;
        for i in 0..n {
            let len = each + (i < extra) as usize;
            let mut group = items[at..at + len].to_vec();
            at += len;
            if let (Some(fill), true) = (&fill, i >= extra && extra > 0) {
                group.push(fill.clone());
            }
            groups.push(Value::list(group)?);
        }
    }
    Value::list(groups)
}
