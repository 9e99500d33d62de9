//! Grammars as masks over the vocabulary, by llguidance. The border's own rules are those of lib.rs.

use crate::fail::{fail, Kind, R};
use crate::{bytes, finish, on_own_thread};
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

fn compile(text: &str, kind: i32) -> R<TopLevelGrammar> {
    match kind {
        0 => match serde_json::from_str(text) {
            Ok(schema) => Ok(TopLevelGrammar::from_json_schema(schema)),
            Err(e) => refuse(e),
        },
        1 => Ok(TopLevelGrammar::from_regex(text)),
        2 => Ok(TopLevelGrammar::from_lark(text.into())),
        _ => {
            let choices: Vec<String> = match serde_json::from_str(text) {
                Ok(choices) => choices,
                Err(e) => return refuse(e),
            };
            let quoted: Vec<String> = choices.iter().map(|c| serde_json::to_string(c).unwrap_or_default()).collect();
            Ok(TopLevelGrammar::from_lark(format!("start: {}", quoted.join(" | "))))
        }
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
        let matcher = on_own_thread(|| {
            let mut matcher = Matcher::new(vocab.factory.create_parser(compile(text, kind)?));
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
        })?;
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
