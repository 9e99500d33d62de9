//! Python's `"..." % x` and `"...".format(x)`, as far as templates use them.

use crate::fail::{runtime, R};
use crate::text::{Builder, Text};
use crate::value::{print, repr, Value};

const MAX_WIDTH: usize = 10_000;

#[derive(Default)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    plus: bool,
    alt: bool,
    width: usize,
    precision: Option<usize>,
    kind: char,
    comma: bool,
}

fn number(chars: &[char], i: &mut usize) -> R<Option<usize>> {
    let start = *i;
    let mut n = 0usize;
    while let Some(d) = chars.get(*i).and_then(|c| c.to_digit(10)) {
        n = n.saturating_mul(10).saturating_add(d as usize);
        *i += 1;
    }
    if n > MAX_WIDTH {
        return runtime(format!("format width {n} is more than {MAX_WIDTH}"));
    }
    Ok((*i > start).then_some(n))
}

fn digits(v: &Value, spec: &Spec) -> R<Option<String>> {
    let body = match (spec.kind, v.as_int(), v.as_float()) {
        ('d' | 'i' | 'u', Some(i), _) => i.abs().to_string(),
        ('d' | 'i' | 'u', None, Some(f)) => (f.trunc() as i128).abs().to_string(),
        ('x', Some(i), _) => format!("{}{:x}", if spec.alt { "0x" } else { "" }, i.abs()),
        ('X', Some(i), _) => format!("{}{:X}", if spec.alt { "0X" } else { "" }, i.abs()),
        ('o', Some(i), _) => format!("{}{:o}", if spec.alt { "0o" } else { "" }, i.abs()),
        ('b', Some(i), _) => format!("{}{:b}", if spec.alt { "0b" } else { "" }, i.abs()),
        ('f' | 'F', _, Some(f)) => format!("{:.*}", spec.precision.unwrap_or(6), f.abs()),
        ('%', _, Some(f)) => format!("{:.*}%", spec.precision.unwrap_or(6), f.abs() * 100.0),
        ('e' | 'g' | 'E' | 'G', _, Some(f)) => crate::value::float_text(f.abs()),
        _ => return Ok(None),
    };
    let body = if spec.comma { group(&body) } else { body };
    let negative = v.as_float().is_some_and(|f| f < 0.0);
    Ok(Some(format!("{}{body}", if negative { "-" } else if spec.plus { "+" } else { "" })))
}

fn group(body: &str) -> String {
    let whole = body.find('.').unwrap_or(body.len());
    let mut out = String::new();
    for (i, c) in body[..whole].chars().enumerate() {
        if i > 0 && (whole - i) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    out + &body[whole..]
}

fn put(out: &mut Builder, v: &Value, spec: &Spec) -> R<()> {
    v.must_be_defined()?;
    let text = match spec.kind {
        's' => {
            let t = v.to_text()?;
            let end = t.as_str().char_indices().nth(spec.precision.unwrap_or(usize::MAX)).map(|x| x.0);
            t.cut(0, end.unwrap_or(t.len()))?
        }
        'r' => {
            let mut b = Builder::default();
            repr(&mut b, v)?;
            b.finish()
        }
        _ => match digits(v, spec)? {
            Some(d) => Text::new(&d),
            None => return runtime(format!("format {} cannot print a {}", spec.kind, v.type_name())),
        },
    };
    let n = spec.width.saturating_sub(text.as_str().chars().count());
    let default = if matches!(spec.kind, 's' | 'r') { '<' } else { '>' };
    let before = match spec.align.unwrap_or(default) {
        '<' => 0,
        '^' => n / 2,
        _ => n,
    };
    let fill = spec.fill.unwrap_or(' ');
    let is_signed = fill == '0' && spec.align == Some('=') && text.as_str().starts_with(['-', '+']);
    if is_signed {
        out.push_cut(&text, 0, 1)?;
    }
    for _ in 0..before {
        out.push_char(fill, false)?;
    }
    out.push_cut(&text, is_signed as usize, text.len())?;
    for _ in before..n {
        out.push_char(fill, false)?;
    }
    Ok(())
}

/// `t % arg`: a tuple holds several arguments, a dict named ones.
pub fn percent(t: &Text, arg: &Value) -> R<Value> {
    let pos: Vec<Value> = match arg {
        Value::List(l) if l.is_tuple => l.items.clone(),
        other => vec![other.clone()],
    };
    percent_args(t, &pos, Some(arg))
}

pub fn percent_args(t: &Text, pos: &[Value], named: Option<&Value>) -> R<Value> {
    let offs: Vec<(usize, char)> = t.as_str().char_indices().collect();
    let chars: Vec<char> = offs.iter().map(|x| x.1).collect();
    crate::fail::spend_bytes(chars.len() * 20)?;
    let mut out = Builder::default();
    let (mut i, mut next) = (0, 0);
    while i < chars.len() {
        if chars[i] != '%' {
            out.push_char(chars[i], t.is_user(offs[i].0))?;
            i += 1;
            continue;
        }
        i += 1;
        let mut key = None;
        if chars.get(i) == Some(&'(') {
            let close = chars[i..].iter().position(|c| *c == ')');
            let Some(close) = close else { return runtime("incomplete format key") };
            key = Some(chars[i + 1..i + close].iter().collect::<String>());
            i += close + 1;
        }
        let mut spec = Spec::default();
        while let Some(c @ ('-' | '+' | '0' | ' ' | '#')) = chars.get(i) {
            match c {
                '-' => spec.align = Some('<'),
                '+' => spec.plus = true,
                '0' => (spec.fill, spec.align) = (Some('0'), spec.align.or(Some('='))),
                '#' => spec.alt = true,
                _ => {}
            }
            i += 1;
        }
        spec.width = number(&chars, &mut i)?.unwrap_or(0);
        if chars.get(i) == Some(&'.') {
            i += 1;
            spec.precision = Some(number(&chars, &mut i)?.unwrap_or(0));
        }
        let Some(&kind) = chars.get(i) else { return runtime("incomplete format") };
        i += 1;
        if kind == '%' {
            out.push_char('%', false)?;
            continue;
        }
        spec.kind = kind;
        let v = match key {
            Some(key) => match named {
                Some(d) => d.dict_get(&Value::Str(Text::new(&key)))?,
                None => None,
            },
            None => {
                next += 1;
                pos.get(next - 1).cloned()
            }
        };
        let Some(v) = v else { return runtime("not enough arguments for format string") };
        put(&mut out, &v, &spec)?;
    }
    Ok(Value::Str(out.finish()))
}

fn braces_spec(text: &str) -> R<Spec> {
    let chars: Vec<char> = text.chars().collect();
    let mut spec = Spec { kind: 's', ..Spec::default() };
    let mut i = 0;
    let is_align = |c: Option<&char>| matches!(c, Some('<' | '>' | '^' | '='));
    if is_align(chars.get(1)) {
        (spec.fill, spec.align) = (Some(chars[0]), Some(chars[1]));
        i = 2;
    } else if is_align(chars.first()) {
        spec.align = Some(chars[0]);
        i = 1;
    }
    if chars.get(i) == Some(&'+') {
        spec.plus = true;
        i += 1;
    }
    if chars.get(i) == Some(&'#') {
        spec.alt = true;
        i += 1;
    }
    if chars.get(i) == Some(&'0') {
        (spec.fill, spec.align) = (spec.fill.or(Some('0')), spec.align.or(Some('=')));
        i += 1;
    }
    spec.width = number(&chars, &mut i)?.unwrap_or(0);
    if chars.get(i) == Some(&',') {
        spec.comma = true;
        i += 1;
    }
    if chars.get(i) == Some(&'.') {
        i += 1;
        spec.precision = number(&chars, &mut i)?;
    }
    if let Some(&kind) = chars.get(i) {
        spec.kind = kind;
        i += 1;
    } else if spec.comma {
        spec.kind = 'd';
    }
    if i < chars.len() {
        return runtime(format!("format specification '{text}' is not understood"));
    }
    Ok(spec)
}

/// `t.format(...)`; get finds the value of a field's name or number.
pub fn braces(t: &Text, mut get: impl FnMut(&str, &mut usize) -> R<Value>) -> R<Value> {
    let s = t.as_str();
    let mut out = Builder::default();
    let (mut at, mut next) = (0, 0);
    while at < s.len() {
        let rest = &s[at..];
        let Some(step) = rest.find(['{', '}']) else {
            out.push_cut(t, at, s.len())?;
            break;
        };
        out.push_cut(t, at, at + step)?;
        at += step;
        let rest = &s[at..];
        if rest.starts_with("{{") || rest.starts_with("}}") {
            out.push_cut(t, at, at + 1)?;
            at += 2;
            continue;
        }
        let close = rest.find('}').filter(|_| rest.starts_with('{'));
        let Some(close) = close else { return runtime("a single brace in a format string") };
        let field = &rest[1..close];
        let (field, spec) = field.split_once(':').unwrap_or((field, ""));
        let (field, as_repr) = match field.strip_suffix("!r") {
            Some(f) => (f, true),
            None => (field.strip_suffix("!s").unwrap_or(field), false),
        };
        let v = get(field, &mut next)?;
        let mut spec_read = braces_spec(spec)?;
        if as_repr {
            spec_read.kind = 'r';
        }
        if spec.is_empty() && !as_repr {
            print(&mut out, &v)?;
        } else {
            if spec_read.kind == 's' && spec_read.align.is_none() && v.as_float().is_some() {
                spec_read.align = Some('>');
            }
            put(&mut out, &v, &spec_read)?;
        }
        at += close + 1;
    }
    Ok(Value::Str(out.finish()))
}
