//! Methods of Python's str, list and dict. Lists and dicts are immutable here, as in the sandbox of transformers.

use crate::eval::Args;
use crate::fail::{runtime, spend_bytes, spend_chars, spend_scan, R};
use crate::format;
use crate::text::{Builder, Text};
use crate::value::{equal, Dict, List, Value};

const OF_STR: [&str; 38] = [
    "strip", "lstrip", "rstrip", "split", "rsplit", "splitlines", "startswith", "endswith", "upper", "lower", "title",
    "capitalize", "swapcase", "casefold", "replace", "find", "rfind", "index", "rindex", "count", "join", "format",
    "isdigit", "isnumeric", "isdecimal", "isalpha", "isalnum", "isspace", "isupper", "islower", "removeprefix",
    "removesuffix", "zfill", "center", "ljust", "rjust", "partition", "rpartition",
];
const OF_LIST: [&str; 11] =
    ["index", "count", "append", "extend", "insert", "pop", "remove", "reverse", "sort", "clear", "copy"];
const OF_DICT: [&str; 10] =
    ["get", "items", "keys", "values", "copy", "pop", "update", "setdefault", "clear", "popitem"];

pub fn has(of: &Value, name: &str) -> bool {
    match of {
        Value::Str(_) => OF_STR.contains(&name),
        Value::List(l) if l.is_tuple => matches!(name, "index" | "count"),
        Value::List(_) => OF_LIST.contains(&name),
        Value::Dict(_) => OF_DICT.contains(&name),
        _ => false,
    }
}

pub fn call(of: &Value, name: &str, args: Args) -> R<Value> {
    match of {
        Value::Str(t) => of_str(t, name, &args),
        Value::List(l) => of_list(l, name, &args),
        Value::Dict(d) => of_dict(of, d, name, &args),
        _ => runtime(format!("'{}' object has no method '{name}'", of.type_name())),
    }
}

fn immutable(of: &str, name: &str) -> R<Value> {
    runtime(format!("'{name}' would change a {of}, which templates may not"))
}

fn of_dict(of: &Value, d: &Dict, name: &str, args: &Args) -> R<Value> {
    spend_bytes(d.items.len() * 16)?;
    match name {
        "get" => match args.get(0, "key") {
            Some(key) => Ok(of.dict_get(&key)?.unwrap_or(args.get(1, "default").unwrap_or(Value::None))),
            None => runtime("get expected at least 1 argument"),
        },
        "items" => {
            let pairs = d.items.iter().map(|(k, v)| Value::tuple(vec![k.clone(), v.clone()]));
            Value::list(pairs.collect::<R<_>>()?)
        }
        "keys" => Value::list(d.items.iter().map(|x| x.0.clone()).collect()),
        "values" => Value::list(d.items.iter().map(|x| x.1.clone()).collect()),
        "copy" => Ok(of.clone()),
        _ => immutable("dict", name),
    }
}

fn of_list(l: &List, name: &str, args: &Args) -> R<Value> {
    let Some(item) = args.pos.first() else {
        return match name {
            "copy" => Value::list(l.items.clone()),
            "index" | "count" => runtime(format!("{name}() takes exactly one argument")),
            _ => immutable("list", name),
        };
    };
    let mut n = 0;
    for (i, x) in l.items.iter().enumerate() {
        if equal(x, item)? {
            if name == "index" {
                return Ok(Value::Int(i as i128));
            }
            n += 1;
        }
    }
    match name {
        "count" => Ok(Value::Int(n)),
        "index" => runtime("the value is not in the list"),
        _ => immutable("list", name),
    }
}

/// The text without the characters of `chars` (whitespace if None) at its ends.
pub fn strip(t: &Text, chars: Option<&str>, left: bool, right: bool) -> R<Text> {
    spend_scan(t.len())?;
    let s = t.as_str();
    let goes = |c: char| match chars {
        Some(set) => set.contains(c),
        None => is_space(c),
    };
    let from = if left { s.len() - s.trim_start_matches(goes).len() } else { 0 };
    let to = if right { s.trim_end_matches(goes).len() } else { s.len() };
    t.cut(from, to.max(from))
}

/// Python's str.isspace: Unicode's white space and the four separators of ASCII.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

pub fn split_text(t: &Text, sep: Option<&str>, max: usize, from_right: bool) -> R<Value> {
    spend_scan(t.len())?;
    let s = t.as_str();
    let mut cuts: Vec<(usize, usize)> = vec![];
    match (sep, from_right) {
        (Some(""), _) => return runtime("empty separator"),
        (Some(sep), false) => {
            let mut at = 0;
            for (found, _) in s.match_indices(sep).take(max) {
                spend_bytes(16)?;
                cuts.push((at, found));
                at = found + sep.len();
            }
            cuts.push((at, s.len()));
        }
        (Some(sep), true) => {
            let mut end = s.len();
            for (found, _) in s.rmatch_indices(sep).take(max) {
                spend_bytes(16)?;
                cuts.push((found + sep.len(), end));
                end = found;
            }
            cuts.push((0, end));
            cuts.reverse();
        }
        (None, false) => {
            let mut rest = s.trim_start_matches(is_space);
            while !rest.is_empty() {
                let at = s.len() - rest.len();
                let n = if cuts.len() == max { rest.len() } else { rest.find(is_space).unwrap_or(rest.len()) };
                cuts.push((at, at + n));
                rest = rest[n..].trim_start_matches(is_space);
            }
        }
        (None, true) => {
            let mut rest = s.trim_end_matches(is_space);
            while !rest.is_empty() {
                let space = rest.char_indices().rev().find(|x| is_space(x.1));
                let from = match space {
                    Some((at, c)) if cuts.len() < max => at + c.len_utf8(),
                    _ => 0,
                };
                cuts.push((from, rest.len()));
                rest = rest[..from].trim_end_matches(is_space);
            }
            cuts.reverse();
        }
    }
    Value::list(cuts.into_iter().map(|(a, b)| Ok(Value::Str(t.cut(a, b)?))).collect::<R<_>>()?)
}

pub fn replace(t: &Text, old: &Text, new: &Text, max: usize) -> R<Text> {
    spend_scan(t.len())?;
    let mut b = Builder::default();
    let mut at = 0;
    for (found, part) in t.as_str().match_indices(old.as_str()).take(max) {
        b.push_cut(t, at, found)?;
        b.push_text(new)?;
        at = found + part.len();
    }
    b.push_cut(t, at, t.len())?;
    Ok(b.finish())
}

pub fn join(sep: &Text, items: &[Value]) -> R<Value> {
    let mut b = Builder::default();
    for (i, x) in items.iter().enumerate() {
        if i > 0 {
            b.push_text(sep)?;
        }
        crate::value::print(&mut b, x)?;
    }
    Ok(Value::Str(b.finish()))
}

/// Each word's first letter upper, the others lower.
pub fn title(t: &Text) -> R<Text> {
    let mut in_word = false;
    t.map_chars(|c, out| {
        if in_word { out.extend(c.to_lowercase()) } else { out.extend(c.to_uppercase()) }
        in_word = c.is_alphabetic();
    })
}

pub fn capitalize(t: &Text) -> R<Text> {
    let mut is_first = true;
    t.map_chars(|c, out| {
        if is_first { out.extend(c.to_uppercase()) } else { out.extend(c.to_lowercase()) }
        is_first = false;
    })
}

#[derive(Clone, Copy)]
pub enum Side {
    Before,
    After,
    Both,
}

/// The text filled up to a width in characters.
pub fn pad(t: &Text, width: i128, fill: char, side: Side) -> R<Text> {
    let n_chars = t.as_str().chars().count();
    let width = width.clamp(0, 1 << 40) as usize;
    let n = width.saturating_sub(n_chars);
    spend_bytes(n)?;
    let before = match side {
        Side::Before => n,
        Side::After => 0,
        Side::Both => n / 2 + (n & width & 1),
    };
    let mut b = Builder::default();
    for i in 0..=n {
        if i == before {
            b.push_text(t)?;
        }
        if i < n {
            b.push_char(fill, false)?;
        }
    }
    Ok(b.finish())
}

fn lines(t: &Text, keep_ends: bool) -> R<Value> {
    spend_scan(t.len())?;
    let s = t.as_str();
    let mut out = vec![];
    let mut at = 0;
    while at < s.len() {
        let rest = &s[at..];
        let (n, n_end) = match rest.find(['\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}']) {
            None => (rest.len(), 0),
            Some(n) if rest[n..].starts_with("\r\n") => (n, 2),
            Some(n) => (n, rest[n..].chars().next().map_or(0, char::len_utf8)),
        };
        out.push(Value::Str(t.cut(at, at + n + if keep_ends { n_end } else { 0 })?));
        at += n + n_end;
    }
    Value::list(out)
}

fn affix(t: &Text, arg: Option<&Value>, test: impl Fn(&str, &str) -> bool) -> R<Value> {
    spend_scan(match arg {
        Some(Value::Str(x)) => x.len().min(t.len()),
        Some(Value::List(l)) => l.items.len() * 64,
        _ => 0,
    })?;
    let any = match arg {
        Some(Value::Str(x)) => test(t.as_str(), x.as_str()),
        Some(Value::List(l)) if l.items.iter().all(|x| x.as_str().is_some()) => {
            l.items.iter().any(|x| test(t.as_str(), x.as_str().unwrap_or("")))
        }
        Some(other) => {
            other.must_be_defined()?;
            return runtime(format!("startswith/endswith need a str or a tuple of str, not {}", other.type_name()));
        }
        None => return runtime("startswith/endswith need an argument"),
    };
    Ok(Value::Bool(any))
}

fn all_chars(t: &Text, test: impl Fn(char) -> bool) -> R<Value> {
    spend_scan(t.len())?;
    Ok(Value::Bool(t.len() > 0 && t.as_str().chars().all(test)))
}

fn of_str(t: &Text, name: &str, args: &Args) -> R<Value> {
    let s = t.as_str();
    let first = args.pos.first();
    let text_arg = |place: usize| match args.pos.get(place) {
        Some(Value::Str(x)) => Ok(x.clone()),
        Some(other) => {
            other.must_be_defined()?;
            runtime(format!("{name}() argument must be str, not {}", other.type_name()))
        }
        None => runtime(format!("{name}() takes more arguments")),
    };
    let chars = match args.get(0, "chars") {
        None | Some(Value::None) => None,
        Some(_) if !matches!(name, "strip" | "lstrip" | "rstrip") => None,
        Some(_) => Some(text_arg(0)?),
    };
    let chars = chars.as_ref().map(Text::as_str);
    let whole = |at: usize| Value::Int(s[..at].chars().count() as i128);
    spend_chars(s.len())?;
    Ok(match name {
        "strip" => Value::Str(strip(t, chars, true, true)?),
        "lstrip" => Value::Str(strip(t, chars, true, false)?),
        "rstrip" => Value::Str(strip(t, chars, false, true)?),
        "split" | "rsplit" => {
            let sep = match args.get(0, "sep") {
                None | Some(Value::None) => None,
                Some(Value::Str(x)) => Some(x),
                Some(other) => return runtime(format!("must be str or None, not {}", other.type_name())),
            };
            let max = args.get(1, "maxsplit").and_then(|v| v.as_int()).unwrap_or(-1);
            let max = if max < 0 { usize::MAX } else { max as usize };
            split_text(t, sep.as_ref().map(Text::as_str), max, name == "rsplit")?
        }
        "splitlines" => lines(t, args.get(0, "keepends").is_some_and(|v| v.is_true()))?,
        "startswith" => affix(t, first, |a, b| a.starts_with(b))?,
        "endswith" => affix(t, first, |a, b| a.ends_with(b))?,
        "upper" => Value::Str(t.map_chars(|c, out| out.extend(c.to_uppercase()))?),
        "lower" | "casefold" => Value::Str(t.map_chars(|c, out| out.extend(c.to_lowercase()))?),
        "swapcase" => Value::Str(t.map_chars(|c, out| {
            if c.is_uppercase() { out.extend(c.to_lowercase()) } else { out.extend(c.to_uppercase()) }
        })?),
        "title" => Value::Str(title(t)?),
        "capitalize" => Value::Str(capitalize(t)?),
        "replace" => {
            let max = args.get(2, "count").and_then(|v| v.as_int()).unwrap_or(-1);
            let max = if max < 0 { usize::MAX } else { max as usize };
            Value::Str(replace(t, &text_arg(0)?, &text_arg(1)?, max)?)
        }
        "find" | "index" | "rfind" | "rindex" => {
            let what = text_arg(0)?;
            let found = if name.starts_with('r') { s.rfind(what.as_str()) } else { s.find(what.as_str()) };
            match found {
                Some(at) => whole(at),
                None if name.ends_with("find") => Value::Int(-1),
                None => return runtime("substring not found"),
            }
        }
        "count" => match text_arg(0)?.as_str() {
            "" => Value::Int(s.chars().count() as i128 + 1),
            what => Value::Int(s.matches(what).count() as i128),
        },
        "join" => {
            let items = first.unwrap_or(&Value::None).iterate()?;
            if let Some(bad) = items.iter().find(|x| x.as_str().is_none()) {
                return runtime(format!("join() expected str, found {}", bad.type_name()));
            }
            join(t, &items)?
        }
        "format" => format::braces(t, |field, next| {
            let place = if field.is_empty() { Some(*next) } else { field.parse().ok() };
            *next += field.is_empty() as usize;
            let found = match place {
                Some(i) => args.pos.get(i).cloned(),
                None => args.named.iter().find(|x| x.0 == field).map(|x| x.1.clone()),
            };
            found.map_or_else(|| runtime(format!("format() has no argument '{field}'")), Ok)
        })?,
        "isdigit" | "isnumeric" | "isdecimal" => all_chars(t, |c| c.is_ascii_digit())?,
        "isalpha" => all_chars(t, char::is_alphabetic)?,
        "isalnum" => all_chars(t, char::is_alphanumeric)?,
        "isspace" => all_chars(t, is_space)?,
        "isupper" => Value::Bool(crate::predicates::call("upper", &Value::Str(t.clone()), &[])?),
        "islower" => Value::Bool(crate::predicates::call("lower", &Value::Str(t.clone()), &[])?),
        "removeprefix" => {
            let n = text_arg(0)?;
            Value::Str(if s.starts_with(n.as_str()) { t.cut(n.len(), s.len())? } else { t.clone() })
        }
        "removesuffix" => {
            let n = text_arg(0)?;
            Value::Str(if s.ends_with(n.as_str()) { t.cut(0, s.len() - n.len())? } else { t.clone() })
        }
        "zfill" | "center" | "ljust" | "rjust" => {
            let Some(width) = first.and_then(|v| v.as_int()) else { return runtime(format!("{name}() needs a width")) };
            let fill = args.pos.get(1).and_then(|v| v.as_str()).and_then(|x| x.chars().next());
            let side = match name {
                "center" => Side::Both,
                "ljust" => Side::After,
                _ => Side::Before,
            };
            Value::Str(pad(t, width, fill.unwrap_or(if name == "zfill" { '0' } else { ' ' }), side)?)
        }
        "partition" | "rpartition" => {
            let sep = text_arg(0)?;
            let is_right = name == "rpartition";
            let found = if is_right { s.rfind(sep.as_str()) } else { s.find(sep.as_str()) };
            let (a, b) = match found {
                Some(at) => (at, at + sep.len()),
                None if is_right => (0, 0),
                None => (s.len(), s.len()),
            };
            let parts = [t.cut(0, a)?, t.cut(a, b)?, t.cut(b, s.len())?];
            Value::tuple(parts.into_iter().map(Value::Str).collect())?
        }
        _ => return runtime(format!("'str' object has no method '{name}'")),
    })
}
