//! Grammars in the form with ::=, as llama.cpp and vLLM's clients write them, to llguidance's Lark.
//!
//! Texts become single characters: the compiler's lexer takes the longest match, which a grammar of characters has not.
//! Source: llama.cpp's grammars/README.

use crate::fail::{fail, Kind, R};
use std::collections::HashMap;
use std::fmt::Write;

const MAX_DEPTH: usize = 100;
const MAX_REPEAT: u32 = 10_000;

/// Whether a grammar is of this form: some line begins with a name and ::=.
pub fn is_gbnf(text: &str) -> bool {
    text.lines().any(|line| {
        let rest = line.trim_start().trim_start_matches(is_name);
        rest.len() < line.trim_start().len() && rest.trim_start().starts_with("::=")
    })
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

struct Reader {
    chars: Vec<char>,
    pos: usize,
    names: HashMap<String, usize>,
    is_defined: Vec<bool>,
}

impl Reader {
    fn refuse<T>(&self, words: &str) -> R<T> {
        let line = 1 + self.chars[..self.pos.min(self.chars.len())].iter().filter(|&&c| c == '\n').count();
        fail(Kind::Request, format!("line {line} of the grammar: {words}"))
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.pos).copied()
    }

    fn eat(&mut self, text: &str) -> bool {
        let n = text.chars().count();
        let is_there = self.chars.len() >= self.pos + n && self.chars[self.pos..self.pos + n].iter().copied().eq(text.chars());
        self.pos += if is_there { n } else { 0 };
        is_there
    }

    fn skip(&mut self) {
        while let Some(c) = self.peek() {
            if c == '#' {
                while self.peek().is_some_and(|c| c != '\n') {
                    self.pos += 1;
                }
            } else if c.is_whitespace() {
                self.pos += 1;
            } else {
                return;
            }
        }
    }

    fn name(&mut self) -> String {
        let from = self.pos;
        while self.peek().is_some_and(is_name) {
            self.pos += 1;
        }
        self.chars[from..self.pos].iter().collect()
    }

    /// Whether a rule begins here; nothing is read.
    fn is_rule(&mut self) -> bool {
        let from = self.pos;
        let is_named = !self.name().is_empty();
        self.skip();
        let is_rule = is_named && self.eat("::=");
        self.pos = from;
        is_rule
    }

    fn idx(&mut self, name: String) -> usize {
        let next = self.names.len();
        let idx = *self.names.entry(name).or_insert(next);
        if idx == next {
            self.is_defined.push(false);
        }
        idx
    }

    /// One character of a text or a list, with its escapes.
    fn character(&mut self) -> R<char> {
        let Some(c) = self.peek() else { return self.refuse("it ends within a text or a list") };
        self.pos += 1;
        if c != '\\' {
            return Ok(c);
        }
        let Some(c) = self.peek() else { return self.refuse("it ends behind a '\\'") };
        self.pos += 1;
        let n_digits = match c {
            'n' => return Ok('\n'),
            'r' => return Ok('\r'),
            't' => return Ok('\t'),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            c if c.is_ascii_alphanumeric() => return self.refuse("this escape is not known"),
            c => return Ok(c),
        };
        let digits: String = self.chars.iter().skip(self.pos).take(n_digits).collect();
        self.pos += n_digits;
        match u32::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == n_digits).and_then(char::from_u32) {
            Some(c) => Ok(c),
            None => self.refuse("an escape names no character"),
        }
    }

    fn list(&mut self, out: &mut String) -> R<()> {
        let is_negative = self.eat("^");
        let mut ranges = String::new();
        while !self.eat("]") {
            let from = self.character()?;
            let is_range = self.peek() == Some('-') && self.chars.get(self.pos + 1).is_some_and(|&c| c != ']');
            self.pos += usize::from(is_range);
            let to = if is_range { self.character()? } else { from };
            if to < from {
                return self.refuse("a range of characters goes backwards");
            }
            let _ = write!(ranges, "\\u{{{:X}}}-\\u{{{:X}}}", from as u32, to as u32);
        }
        if ranges.is_empty() {
            return self.refuse("a list of characters is empty");
        }
        let _ = write!(out, "/[{}{ranges}]/", if is_negative { "^" } else { "" });
        Ok(())
    }

    fn text(&mut self, out: &mut String) -> R<()> {
        out.push('(');
        let mut is_empty = true;
        while !self.eat("\"") {
            let c = self.character()?;
            let _ = write!(out, "/\\u{{{:X}}}/ ", c as u32);
            is_empty = false;
        }
        out.push_str(if is_empty { "\"\")" } else { ")" });
        Ok(())
    }

    /// Behind an item: how often it comes.
    fn repeat(&mut self, out: &mut String) -> R<()> {
        while let Some(c @ ('*' | '+' | '?')) = self.peek() {
            self.pos += 1;
            out.insert(0, '(');
            out.push(c);
            out.push(')');
        }
        if !self.eat("{") {
            return Ok(());
        }
        let from = self.pos;
        while self.peek().is_some_and(|c| c != '}') {
            self.pos += 1;
        }
        let bounds: String = self.chars[from..self.pos].iter().filter(|c| !c.is_whitespace()).collect();
        let (low, high) = bounds.split_once(',').unwrap_or((&bounds, &bounds));
        let number = |text: &str| text.parse::<u32>().ok().filter(|&n| n <= MAX_REPEAT);
        let (Some(low), Some(high)) = (number(low), if high.is_empty() { Some(u32::MAX) } else { number(high) }) else {
            return self.refuse("a repetition must be {n}, {n,} or {n,m}, at most 10000");
        };
        if high < low || !self.eat("}") {
            return self.refuse("a repetition ends before it begins");
        }
        let high = if high == u32::MAX { String::new() } else { high.to_string() };
        out.insert(0, '(');
        let _ = write!(out, "){{{low},{high}}}");
        Ok(())
    }

    fn alternatives(&mut self, depth: usize) -> R<String> {
        if depth > MAX_DEPTH {
            return self.refuse("it is nested too deeply");
        }
        let (mut out, mut is_empty) = (String::new(), true);
        loop {
            self.skip();
            let mut item = String::new();
            match self.peek() {
                Some('|') => {
                    self.pos += 1;
                    out.push_str(if is_empty { "\"\" | " } else { "| " });
                    is_empty = true;
                    continue;
                }
                Some('"') => {
                    self.pos += 1;
                    self.text(&mut item)?;
                }
                Some('[') => {
                    self.pos += 1;
                    self.list(&mut item)?;
                }
                Some('.') => {
                    self.pos += 1;
                    item.push_str("/(?s:.)/");
                }
                Some('(') => {
                    self.pos += 1;
                    item = format!("({})", self.alternatives(depth + 1)?);
                    if !self.eat(")") {
                        return self.refuse("a ')' is missing");
                    }
                }
                Some(c) if is_name(c) && !self.is_rule() => {
                    let name = self.name();
                    item = format!("r{}", self.idx(name));
                }
                _ => break,
            }
            self.repeat(&mut item)?;
            out.push_str(&item);
            out.push(' ');
            is_empty = false;
        }
        if is_empty {
            out.push_str("\"\"");
        }
        Ok(out)
    }
}

pub fn to_lark(text: &str) -> R<String> {
    let mut reader = Reader { chars: text.chars().collect(), pos: 0, names: HashMap::new(), is_defined: vec![] };
    let root = reader.idx("root".into());
    let mut lark = format!("start: r{root}\n");
    reader.skip();
    while reader.is_rule() {
        let name = reader.name();
        let idx = reader.idx(name.clone());
        reader.skip();
        reader.eat("::=");
        if std::mem::replace(&mut reader.is_defined[idx], true) {
            return reader.refuse(&format!("'{name}' is there twice"));
        }
        let rule = reader.alternatives(0)?;
        let _ = writeln!(lark, "r{idx}: {rule}");
    }
    if reader.peek().is_some() {
        return reader.refuse("a rule, NAME ::= ..., is expected");
    }
    match reader.names.iter().find(|(_, &idx)| !reader.is_defined[idx]) {
        Some((name, _)) => fail(Kind::Request, format!("the grammar has no rule '{name}'")),
        None => Ok(lark),
    }
}
