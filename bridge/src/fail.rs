//! Why a template could not be rendered, and the budget that stops one that would not end.

use std::cell::Cell;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Kind {
    Syntax = 1,
    Refused = 2,
    Limit = 3,
    Runtime = 4,
    Request = 5,
    Internal = 6,
}

#[derive(Clone, Debug)]
pub struct Fail {
    pub kind: Kind,
    pub words: String,
}

pub type R<T> = Result<T, Fail>;

pub fn fail<T>(kind: Kind, words: impl Into<String>) -> R<T> {
    Err(Fail { kind, words: words.into() })
}

pub fn runtime<T>(words: impl Into<String>) -> R<T> {
    fail(Kind::Runtime, words)
}

/// Nodes evaluated and items touched in one render.
const MAX_STEPS: u64 = 5_000_000;
/// Bytes written to texts and lists in one render, freed ones included: it bounds memory and time at once.
const MAX_BYTES: u64 = 256 << 20;

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
}

/// The budget is the thread's, which renders one at a time.
pub fn fill_budget() {
    STEPS.with(|c| c.set(MAX_STEPS));
    BYTES.with(|c| c.set(MAX_BYTES));
}

fn spend(left: &'static std::thread::LocalKey<Cell<u64>>, n: u64, words: &str) -> R<()> {
    left.with(|c| match c.get().checked_sub(n) {
        Some(rest) => {
            c.set(rest);
            Ok(())
        }
        None => {
            c.set(0);
            fail(Kind::Limit, words)
        }
    })
}

pub fn spend_steps(n: usize) -> R<()> {
    spend(&STEPS, n as u64, "the template takes more than 5000000 steps")
}

pub fn spend_bytes(n: usize) -> R<()> {
    spend(&BYTES, n as u64, "the template writes more than 256 MiB")
}

/// Looking at single characters: one step for 8 bytes.
pub fn spend_chars(n: usize) -> R<()> {
    spend_steps(1 + n / 8)
}

/// Reading is cheaper than writing: one step for 16 bytes.
pub fn spend_scan(n: usize) -> R<()> {
    spend_steps(1 + n / 16)
}
