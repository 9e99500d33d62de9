//! Grammars as masks over the vocabulary, by llguidance. The border's own rules are those of lib.rs.

use crate::fail::{fail, Kind, R};
use crate::{bytes, finish, gbnf, on_own_thread, schema};
use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use toktrie::{ApproximateTokEnv, TokRxInfo, TokTrie};

const MAX_NOTE_CHARS: usize = 300;

pub struct Vocab {
    factory: ParserFactory,
}

/// One matcher per choice.
pub struct Grammar {
    matchers: Vec<Matcher>,
}

fn refuse<T>(error: impl std::fmt::Display) -> R<T> {
    let words = error.to_string().replace('\n', " ");
    fail(Kind::Request, words.chars().take(MAX_NOTE_CHARS).collect::<String>())
}

/// The schema is what is checked strictly first; what else only the compiler sees gets its place afterwards.
enum Form {
    Schema(serde_json::Value),
    Other(TopLevelGrammar),
}

fn read(text: &str, kind: i32) -> R<Form> {
    let json = |e: serde_json::Error| refuse::<()>(e).unwrap_err();
    match kind {
        0 => {
            let schema = serde_json::from_str(text).map_err(json)?;
            schema::check(&schema).or_else(refuse)?;
            Ok(Form::Schema(schema))
        }
        1 => {
            schema::check_pattern(text).or_else(refuse)?;
            Ok(Form::Other(TopLevelGrammar::from_regex(text)))
        }
        2 if gbnf::is_gbnf(text) => Ok(Form::Other(TopLevelGrammar::from_lark(gbnf::to_lark(text)?))),
        2 => Ok(Form::Other(TopLevelGrammar::from_lark(text.into()))),
        _ => {
            let choices: Vec<String> = serde_json::from_str(text).map_err(json)?;
            let quoted: Vec<String> = choices.iter().map(|c| serde_json::to_string(c).unwrap_or_default()).collect();
            Ok(Form::Other(TopLevelGrammar::from_lark(format!("start: {}", quoted.join(" | ")))))
        }
    }
}

fn compile(factory: &ParserFactory, grammar: TopLevelGrammar) -> R<Matcher> {
    let mut matcher = Matcher::new(factory.create_parser(grammar));
    if let Some(error) = matcher.get_error() {
        return refuse(error);
    }
    // What the compiler only warns of would not be honoured.
    if let Some(warning) = matcher.grammar_warnings().first() {
        return refuse(warning);
    }
    // The first mask tells of grammars that allow nothing.
    match matcher.compute_mask() {
        Ok(mask) if mask.num_set() == 0 => refuse("no text satisfies it"),
        Ok(_) => Ok(matcher),
        Err(e) => refuse(e),
    }
}

fn make(factory: &ParserFactory, text: &str, kind: i32) -> R<Matcher> {
    match read(text, kind)? {
        Form::Other(grammar) => compile(factory, grammar),
        Form::Schema(schema) => compile(factory, TopLevelGrammar::from_json_schema(schema.clone())).or_else(|e| {
            let compiles = |part| !Matcher::new(factory.create_parser(TopLevelGrammar::from_json_schema(part))).is_error();
            refuse(format!("{}: {}", schema::blame(&schema, &compiles), e.words))
        }),
    }
}

/// # Safety
/// See kvick_bridge.h.
#[no_mangle]
pub unsafe extern "C" fn kvick_bridge_vocab_create(
    out: *mut *mut Vocab,
    text: *const u8,
    ends: *const usize,
    is_special: *const u8,
    n_tokens: usize,
    eos: u32,
    note: *mut u8,
    note_cap: usize,
) -> i32 {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let (ends, specials) = (std::slice::from_raw_parts(ends, n_tokens), bytes(is_special, n_tokens));
        let text = bytes(text, ends.last().copied().unwrap_or(0));
        let mut words = Vec::with_capacity(n_tokens);
        let mut from = 0;
        for (end, special) in ends.iter().zip(specials) {
            let mut word = vec![];
            if *special != 0 {
                word.push(TokTrie::SPECIAL_TOKEN_MARKER);
            }
            word.extend_from_slice(&text[from..*end]);
            words.push(word);
            from = *end;
        }
        let factory = on_own_thread(|| {
            let trie = TokTrie::from(&TokRxInfo::new(n_tokens as u32, eos), &words);
            let env: toktrie::TokEnv = Arc::new(ApproximateTokEnv::new(trie));
            let mut factory = match ParserFactory::new_simple(&env) {
                Ok(factory) => factory,
                Err(e) => return refuse(e),
            };
            factory.quiet();
            factory.limits_mut().verbose_errors = false;
            Ok(factory)
        })?;
        *out = Box::into_raw(Box::new(Vocab { factory }));
        Ok(())
    }));
    finish(result, note, note_cap)
}

/// # Safety
/// See kvick_bridge.h.
#[no_mangle]
pub unsafe extern "C" fn kvick_bridge_vocab_destroy(vocab: *mut Vocab) {
    if !vocab.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(vocab))));
    }
}

/// # Safety
/// See kvick_bridge.h.
#[no_mangle]
pub unsafe extern "C" fn kvick_bridge_grammar_create(
    out: *mut *mut Grammar,
    vocab: *const Vocab,
    kind: i32,
    text: *const u8,
    n_bytes: usize,
    n_choices: usize,
    note: *mut u8,
    note_cap: usize,
) -> i32 {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let vocab = &*vocab;
        let Ok(text) = std::str::from_utf8(bytes(text, n_bytes)) else {
            return fail(Kind::Request, "the grammar is not UTF-8");
        };
        let matcher = on_own_thread(|| make(&vocab.factory, text, kind))?;
        let mut matchers: Vec<Matcher> = (1..n_choices).map(|_| matcher.deep_clone()).collect();
        matchers.push(matcher);
        *out = Box::into_raw(Box::new(Grammar { matchers }));
        Ok(())
    }));
    finish(result, note, note_cap)
}

/// # Safety
/// See kvick_bridge.h.
#[no_mangle]
pub unsafe extern "C" fn kvick_bridge_grammar_destroy(grammar: *mut Grammar) {
    if !grammar.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(grammar))));
    }
}

/// # Safety
/// See kvick_bridge.h.
#[no_mangle]
pub unsafe extern "C" fn kvick_bridge_grammar_fill(
    grammar: *mut Grammar,
    choice: usize,
    words: *mut u32,
    n_words: usize,
    note: *mut u8,
    note_cap: usize,
) -> i32 {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let grammar = &mut *grammar;
        match grammar.matchers[choice].compute_mask_or_eos() {
            Ok(mask) => {
                let from = mask.as_slice();
                std::ptr::copy_nonoverlapping(from.as_ptr(), words, from.len().min(n_words));
                Ok(())
            }
            Err(e) => refuse(e),
        }
    }));
    finish(result, note, note_cap)
}

/// # Safety
/// See kvick_bridge.h.
#[no_mangle]
pub unsafe extern "C" fn kvick_bridge_grammar_accept(
    grammar: *mut Grammar,
    choice: usize,
    token: u32,
    note: *mut u8,
    note_cap: usize,
) -> i32 {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let grammar = &mut *grammar;
        let matcher = &mut grammar.matchers[choice];
        if matcher.is_stopped() {
            return Ok(());
        }
        match matcher.consume_token(token) {
            Ok(()) => Ok(()),
            Err(e) => refuse(e),
        }
    }));
    finish(result, note, note_cap)
}
