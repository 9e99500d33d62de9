//! What a JSON schema or a pattern demands that llguidance would take loosely or not at all, with its place.
//!
//! Places are JSON pointers from the root, "#/properties/a/pattern".   Source: JSON Schema 2020-12; ECMA-262, 22.2.

use regex_syntax::ast::{self, Ast, ClassSet, ClassSetItem};
use serde_json::{Map, Value};
use std::time::{Duration, Instant};

/// Keywords that assert something and are not compiled.
const UNSUPPORTED: [&str; 18] = [
    "not", "if", "then", "else", "contains", "minContains", "maxContains", "uniqueItems", "propertyNames",
    "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedItems", "unevaluatedProperties",
    "contentSchema", "$dynamicRef", "$recursiveRef", "extends",
];
const TYPES: [&str; 7] = ["null", "boolean", "number", "integer", "string", "array", "object"];
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];
/// The compiler's numbers are doubles: whole ones beyond would become others.
const MAX_WHOLE: u64 = 1 << 53;
/// How long the place of a fault may be sought.
const MAX_BLAME: Duration = Duration::from_millis(300);
/// Where the root lies while a part of it is compiled alone.
const ROOT: &str = "kvick-root";

type Check = Result<(), String>;

// ---- patterns ----

fn repeated(node: &Ast) -> Option<&'static str> {
    match node {
        Ast::Assertion(_) | Ast::Empty(_) | Ast::Flags(_) => Some("it repeats what has no text"),
        Ast::Repetition(_) => Some("it repeats a repetition"),
        _ => None,
    }
}

/// Lists within lists, and what joins them, are characters like others in JavaScript.
fn class_is_plain(set: &ClassSet) -> bool {
    match set {
        ClassSet::BinaryOp(_) => false,
        ClassSet::Item(item) => match item {
            ClassSetItem::Ascii(_) | ClassSetItem::Bracketed(_) => false,
            ClassSetItem::Union(union) => union.items.iter().all(|one| class_is_plain(&ClassSet::Item(one.clone()))),
            _ => true,
        },
    }
}

fn check_ast(node: &Ast) -> Check {
    match node {
        Ast::Repetition(r) => match repeated(&r.ast) {
            Some(words) => Err(words.into()),
            None => check_ast(&r.ast),
        },
        Ast::Group(g) => {
            if matches!(&g.kind, ast::GroupKind::CaptureName { name, .. } if name.name == "stop") {
                return Err("a group may not be named 'stop'".into());
            }
            check_ast(&g.ast)
        }
        Ast::Alternation(a) => a.asts.iter().try_for_each(check_ast),
        Ast::Concat(c) => c.asts.iter().try_for_each(check_ast),
        Ast::ClassBracketed(c) if !class_is_plain(&c.kind) => {
            Err("a list of characters may not hold another one, '&&', '--' or '~~'".into())
        }
        _ => Ok(()),
    }
}

/// A pattern that means the same in every dialect; the compiler itself is more generous.
pub fn check_pattern(pattern: &str) -> Check {
    let mut parser = ast::parse::ParserBuilder::new().nest_limit(250).build();
    match parser.parse(pattern) {
        Ok(node) => check_ast(&node),
        Err(e) => Err(e.kind().to_string()),
    }
}

// ---- schemas ----

fn step(place: &str, key: &str) -> String {
    format!("{place}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// The place that a reference within the schema names; None: it leads elsewhere.
fn place_of(reference: &str) -> Option<String> {
    let fragment = reference.strip_prefix('#')?;
    let mut bytes = vec![];
    let mut rest = fragment.bytes();
    while let Some(b) = rest.next() {
        let digits = if b == b'%' { [rest.next()?, rest.next()?] } else { [0, 0] };
        let hex = || u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok();
        bytes.push(if b == b'%' { hex()? } else { b });
    }
    Some(format!("#{}", String::from_utf8(bytes).ok()?))
}

fn at<'a>(root: &'a Value, place: &str) -> Option<&'a Value> {
    root.pointer(&place[1..])
}

fn is_annotation(key: &str) -> bool {
    matches!(key, "$defs" | "definitions" | "$id" | "$schema" | "$anchor" | "title" | "description" | "default" | "examples")
}

/// The parts of a schema that are schemas themselves, each with its place; those of $defs count where they are used.
fn parts<'a>(node: &'a Map<String, Value>, place: &str) -> Vec<(String, &'a Value)> {
    let mut found = vec![];
    for (key, value) in node {
        let here = step(place, key);
        match (key.as_str(), value) {
            ("properties" | "patternProperties", Value::Object(map)) => {
                found.extend(map.iter().map(|(name, one)| (step(&here, name), one)));
            }
            ("prefixItems" | "anyOf" | "oneOf" | "allOf" | "items", Value::Array(list)) => {
                found.extend(list.iter().enumerate().map(|(i, one)| (format!("{here}/{i}"), one)));
            }
            ("items" | "additionalItems" | "additionalProperties", one) => found.push((here, one)),
            _ => {}
        }
    }
    found
}

fn check_numbers(value: &Value) -> Check {
    match value {
        Value::Number(n) if n.as_i64().map(i64::unsigned_abs).or(n.as_u64()).is_some_and(|n| n > MAX_WHOLE) => {
            Err(format!("{n} is beyond 2^53"))
        }
        Value::Array(list) => list.iter().try_for_each(check_numbers),
        Value::Object(map) => map.values().try_for_each(check_numbers),
        _ => Ok(()),
    }
}

fn check_type(value: &Value) -> Check {
    let is_known = |one: &Value| one.as_str().is_some_and(|name| TYPES.contains(&name));
    let fits = value.as_array().map_or(is_known(value), |list| !list.is_empty() && list.iter().all(is_known));
    if fits { Ok(()) } else { Err("it is no type, and no list of types".into()) }
}

/// One keyword's own value, the schemas in it left out.
fn check_keyword(key: &str, value: &Value, node: &Map<String, Value>) -> Check {
    let expect = |fits: bool, words: &str| if fits { Ok(()) } else { Err(words.to_string()) };
    match key {
        _ if UNSUPPORTED.contains(&key) => Err("this keyword is not supported".into()),
        "type" => check_type(value),
        "enum" => expect(value.as_array().is_some_and(|list| !list.is_empty()), "it must be a list that is not empty")
            .and_then(|()| check_numbers(value)),
        "const" => check_numbers(value),
        "pattern" => value.as_str().map_or(Err("it must be a string".into()), check_pattern),
        "format" => expect(value.as_str().is_some_and(|name| FORMATS.contains(&name)), "this format is not known"),
        "properties" => expect(value.is_object(), "it must be an object"),
        "patternProperties" => value.as_object().map_or(Err("it must be an object".into()), |map| {
            map.keys().try_for_each(|one| check_pattern(one))
        }),
        "required" => expect(
            value.as_array().is_some_and(|list| list.iter().all(Value::is_string)),
            "it must be a list of strings",
        ),
        "anyOf" | "oneOf" | "allOf" | "prefixItems" => {
            expect(value.as_array().is_some_and(|list| !list.is_empty()), "it must be a list that is not empty")
        }
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
            expect(value.as_u64().is_some(), "it must be a whole number that is not negative")?;
            // Names that the schema does not list may come twice, and then count once.
            let n_named = node.get("required").and_then(Value::as_array).map_or(0, Vec::len) as u64;
            expect(
                key != "minProperties" || value.as_u64() <= Some(n_named),
                "more properties than are required by name cannot be counted",
            )
        }
        "minimum" | "maximum" => expect(value.is_number(), "it must be a number").and_then(|()| check_numbers(value)),
        "exclusiveMinimum" | "exclusiveMaximum" => {
            expect(value.is_number() || value.is_boolean(), "it must be a number").and_then(|()| check_numbers(value))
        }
        "multipleOf" => expect(value.as_f64().is_some_and(|n| n > 0.0), "it must be a number above 0"),
        _ => Ok(()),
    }
}

struct Walk<'a> {
    root: &'a Value,
    seen: Vec<String>,
}

impl Walk<'_> {
    fn node(&mut self, value: &Value, place: &str) -> Check {
        let node = match value {
            Value::Bool(_) => return Ok(()),
            Value::Object(node) => node,
            _ => return Err(format!("{place}: a schema must be an object, true or false")),
        };
        for (key, value) in node {
            check_keyword(key, value, node).map_err(|words| format!("{}: {words}", step(place, key)))?;
        }
        if let Some(reference) = node.get("$ref") {
            self.reference(reference, &step(place, "$ref"))?;
        }
        parts(node, place).into_iter().try_for_each(|(place, part)| self.node(part, &place))
    }

    fn reference(&mut self, value: &Value, place: &str) -> Check {
        let Some(target) = value.as_str().and_then(place_of) else {
            return Err(format!("{place}: only references within the schema, '#...', are followed"));
        };
        let is_name = target.len() > 1 && !target.starts_with("#/");
        if is_name || self.seen.contains(&target) {
            return Ok(()); // of an $anchor, the compiler looks for it
        }
        let Some(schema) = at(self.root, &target) else {
            return Err(format!("{place}: there is nothing at '{target}'"));
        };
        self.seen.push(target.clone());
        self.node(schema, &target)
    }
}

/// The first keyword that cannot be honoured as it stands.
pub fn check(root: &Value) -> Check {
    Walk { root, seen: vec!["#".into()] }.node(root, "#")
}

// ---- the place of a fault that only the compiler sees ----

/// References of a copy that lies at /ROOT.
fn moved(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.iter()
                .filter(|(key, one)| !(key.as_str() == "$id" && one.is_string()))
                .map(|(key, one)| match (key.as_str(), one) {
                    ("$ref", Value::String(to)) if to == "#" || to.starts_with("#/") => {
                        (key.clone(), Value::String(format!("#/{ROOT}{}", &to[1..])))
                    }
                    _ => (key.clone(), moved(one)),
                })
                .collect(),
        ),
        Value::Array(list) => Value::Array(list.iter().map(moved).collect()),
        other => other.clone(),
    }
}

struct Blame<'a> {
    root: &'a Value,
    moved: Value,
    compiles: &'a dyn Fn(Value) -> bool,
    until: Instant,
    seen: Vec<String>,
}

impl Blame<'_> {
    /// Whether the schema at the place compiles alone, without one of its keywords.
    fn is_sound(&self, place: &str, without: &str) -> bool {
        match at(&self.moved, place) {
            Some(Value::Object(node)) if Instant::now() < self.until => {
                let mut alone = node.clone();
                alone.shift_remove(without);
                alone.insert(ROOT.into(), self.moved.clone());
                (self.compiles)(Value::Object(alone))
            }
            Some(Value::Bool(false)) => false,
            _ => true,
        }
    }

    fn descend(&mut self, place: String) -> String {
        let Some(Value::Object(node)) = at(self.root, &place) else { return place };
        let target = node.get("$ref").and_then(Value::as_str).and_then(place_of).filter(|to| !self.seen.contains(to));
        for part in parts(node, &place).into_iter().map(|(part, _)| part).chain(target) {
            if !self.is_sound(&part, "") {
                self.seen.push(part.clone());
                return self.descend(part);
            }
        }
        // Without its type nearly every schema can be satisfied.
        let (types, others): (Vec<_>, Vec<_>) =
            node.keys().filter(|key| !is_annotation(key)).partition(|key| key.as_str() == "type");
        let guilty = others.into_iter().chain(types).find(|key| self.is_sound(&place, key));
        guilty.map_or(place.clone(), |key| step(&place, key))
    }
}

/// The innermost place without which the schema would compile, as far as it is found in time.
pub fn blame(root: &Value, compiles: &dyn Fn(Value) -> bool) -> String {
    let until = Instant::now() + MAX_BLAME;
    Blame { root, moved: moved(root), compiles, until, seen: vec!["#".into()] }.descend("#".into())
}
