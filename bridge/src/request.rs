//! A chat request's JSON to a template's variables, and the order in which doubtful forms are tried.

use crate::ast::Template;
use crate::eval;
use crate::fail::{fail, fill_budget, Kind, R};
use crate::json::{dumps, to_value, Dumps};
use crate::text::{Builder, Ranges, Text};
use crate::value::Value;
use serde_json::{Map, Value as Json};

/// What a request may say in two ways. HF's own reading comes first; the others are tried only where a template fails
/// on it with an error of types, never where it refuses or runs out of budget.
#[derive(Clone, Copy)]
struct Reading {
    tools_undefined: bool, // absent tools: none, or not defined
    arguments_as_text: bool,
    null_as_empty: bool,
}

fn request_fail<T>(words: String) -> R<T> {
    fail(Kind::Request, words)
}

/// A list of text parts becomes one string, plainly joined; null stays null.
fn flatten_content(message: &mut Map<String, Json>, at: usize) -> R<()> {
    let place = format!("messages[{at}].content");
    match message.get("content") {
        Some(Json::String(_) | Json::Null) => Ok(()),
        None if message.get("role").and_then(Json::as_str) == Some("user") => {
            request_fail(format!("{place} is missing"))
        }
        None => Ok(()),
        Some(Json::Array(parts)) => {
            let mut whole = String::new();
            for (i, part) in parts.iter().enumerate() {
                match (part.get("type").and_then(Json::as_str), part.get("text").and_then(Json::as_str)) {
                    (Some("text"), Some(text)) => whole.push_str(text),
                    (Some("text"), None) => return request_fail(format!("{place}[{i}].text is not a string")),
                    (Some(other), _) => {
                        return request_fail(format!("{place}[{i}].type is '{other}'; this model reads only text"))
                    }
                    _ => return request_fail(format!("{place}[{i}].type is missing")),
                }
            }
            message.insert("content".into(), Json::String(whole));
            Ok(())
        }
        Some(_) => request_fail(format!("{place} is neither a string nor a list of parts")),
    }
}

/// OpenAI's clients send arguments as the text of a JSON object. Most templates expect the object, some the text: this
/// gives each call's arguments the wanted form. True if there is a call whose arguments have both.
fn shape_arguments(message: &mut Map<String, Json>, as_text: bool) -> R<bool> {
    let Some(Json::Array(calls)) = message.get_mut("tool_calls") else { return Ok(false) };
    let mut found = false;
    for arguments in calls.iter_mut().filter_map(|c| c.pointer_mut("/function/arguments")) {
        match arguments {
            Json::String(text) => match serde_json::from_str::<Json>(text) {
                Ok(object @ Json::Object(_)) if !as_text => *arguments = object,
                Ok(Json::Object(_)) => {}
                _ => continue,
            },
            Json::Object(_) if as_text => {
                let mut b = Builder::default();
                dumps(&mut b, &to_value(arguments)?, &Dumps::default(), 0)?;
                *arguments = Json::String(b.into_parts().0);
            }
            Json::Object(_) => {}
            _ => continue,
        }
        found = true;
    }
    Ok(found)
}

struct Request {
    messages: Vec<Json>, // arguments as objects
    vars: Map<String, Json>,
    has_arguments: bool,
    has_null: bool,
}

fn read(json: &str) -> R<Request> {
    let root: Json = match serde_json::from_str(json) {
        Ok(root) => root,
        Err(e) => return request_fail(format!("the request is no JSON: {e}")),
    };
    let Json::Object(mut root) = root else { return request_fail("the request is no JSON object".into()) };
    if root.contains_key("chat_template") {
        return request_fail("chat_template is not accepted in a request".into());
    }
    let Some(Json::Array(mut messages)) = root.remove("messages") else {
        return request_fail("messages is missing or no list".into());
    };
    if messages.is_empty() {
        return request_fail("messages is empty".into());
    }
    let mut request = Request { messages: vec![], vars: Map::new(), has_arguments: false, has_null: false };
    for (at, message) in messages.iter_mut().enumerate() {
        let Json::Object(message) = message else { return request_fail(format!("messages[{at}] is no object")) };
        if !matches!(message.get("role"), Some(Json::String(_))) {
            return request_fail(format!("messages[{at}].role is missing or no string"));
        }
        flatten_content(message, at)?;
        request.has_null |= !matches!(message.get("content"), Some(Json::String(_)));
        request.has_arguments |= shape_arguments(message, false)?;
    }
    request.messages = messages;
    if let Some(kwargs) = root.remove("chat_template_kwargs") {
        let Json::Object(kwargs) = kwargs else { return request_fail("chat_template_kwargs is no object".into()) };
        for (key, v) in kwargs {
            if matches!(key.as_str(), "chat_template" | "messages") {
                return request_fail(format!("chat_template_kwargs.{key} is not accepted"));
            }
            request.vars.insert(key, v);
        }
    }
    for key in ["tools", "documents", "add_generation_prompt"] {
        if let Some(v) = root.remove(key) {
            request.vars.insert(key.into(), v);
        }
    }
    request.vars.entry("add_generation_prompt").or_insert(Json::Bool(true));
    Ok(request)
}

fn attempt(t: &Template, request: &Request, specials: &[(&str, Option<String>)], how: Reading, now_s: i64) -> R<(String, Ranges)> {
    let mut vars = vec![];
    let mut list = vec![];
    for message in &request.messages {
        let mut message = message.clone();
        if let Json::Object(m) = &mut message {
            if how.null_as_empty && !matches!(m.get("content"), Some(Json::String(_))) {
                m.insert("content".into(), Json::String(String::new()));
            }
            if how.arguments_as_text {
                shape_arguments(m, true)?;
            }
        }
        list.push(to_value(&message)?);
    }
    vars.push(("messages", Value::list(list)?));
    for (key, v) in &request.vars {
        vars.push((key.as_str(), to_value(v)?));
    }
    for key in ["tools", "documents"] {
        if !request.vars.contains_key(key) && !how.tools_undefined {
            vars.push((key, Value::None));
        }
    }
    for (key, text) in specials {
        if let (Some(text), false) = (text, request.vars.contains_key(*key)) {
            vars.push((key, Value::Str(Text::new(text))));
        }
    }
    eval::render(t, vars, now_s)
}

pub fn render(t: &Template, json: &str, specials: &[(&str, Option<String>)], now_s: i64) -> R<(String, Ranges)> {
    fill_budget();
    let request = read(json)?;
    let has_no_tools = !request.vars.contains_key("tools");
    let choices = |can: bool| if can { &[false, true][..] } else { &[false][..] };
    let mut first_error = None;
    for &null_as_empty in choices(request.has_null) {
        for &arguments_as_text in choices(request.has_arguments) {
            for &tools_undefined in choices(has_no_tools) {
                let how = Reading { tools_undefined, arguments_as_text, null_as_empty };
                match attempt(t, &request, specials, how, now_s) {
                    Err(e) if e.kind == Kind::Runtime => first_error = first_error.or(Some(e)),
                    // A later reading that is refused or stopped says less than why the first one failed.
                    Err(e) => return Err(first_error.unwrap_or(e)),
                    Ok(text) => return Ok(text),
                }
            }
        }
    }
    match first_error {
        Some(e) => Err(e),
        None => fail(Kind::Internal, "no reading was tried"),
    }
}
