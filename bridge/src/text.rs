//! Text that knows which of its bytes came from the request.
//!
//! Every operation keeps the origin of each byte, so that the tokenizer can refuse special tokens in what a user wrote
//! while it reads them in what the template wrote.

use crate::fail::{spend_bytes, R};
use std::sync::Arc;

/// What writing single characters costs on top of their bytes: it is slower than copying.
const CHAR_COST: usize = 4;

/// What a piece of a text takes on top of its bytes: the value in its list and two counts.
const PIECE_COST: usize = 96;

/// Byte ranges `[from, to)`, ascending, not touching one another.
pub type Ranges = Vec<(usize, usize)>;

#[derive(Clone)]
pub struct Text {
    s: Arc<str>,
    user: Option<Arc<Ranges>>, // None: every byte is the template's
}

impl Text {
    pub fn new(s: &str) -> Text {
        Text { s: s.into(), user: None }
    }
    pub fn shared(s: &Arc<str>) -> Text {
        Text { s: s.clone(), user: None }
    }
    pub fn from_user(s: &str) -> Text {
        let user = if s.is_empty() { None } else { Some(Arc::new(vec![(0, s.len())])) };
        Text { s: s.into(), user }
    }
    pub fn as_str(&self) -> &str {
        &self.s
    }
    pub fn len(&self) -> usize {
        self.s.len()
    }
    /// The bytes `[from, to)`, which are whole characters.
    pub fn cut(&self, from: usize, to: usize) -> R<Text> {
        if from == 0 && to == self.len() {
            return Ok(self.clone());
        }
        spend_bytes(PIECE_COST)?;
        let mut b = Builder::default();
        b.push_cut(self, from, to.max(from))?;
        Ok(b.finish())
    }
    /// A copy with each character replaced by what `change` writes for it.
    pub fn map_chars(&self, mut change: impl FnMut(char, &mut String)) -> R<Text> {
        let mut b = Builder::default();
        let mut one = String::new();
        for (at, c) in self.s.char_indices() {
            one.clear();
            change(c, &mut one);
            spend_bytes(CHAR_COST)?;
            b.push(&one, self.is_user(at))?;
        }
        Ok(b.finish())
    }
    pub fn is_user(&self, at: usize) -> bool {
        match &self.user {
            None => false,
            Some(r) => {
                let i = r.partition_point(|x| x.1 <= at);
                i < r.len() && r[i].0 <= at
            }
        }
    }
}

#[derive(Default)]
pub struct Builder {
    s: String,
    user: Ranges,
}

impl Builder {
    pub fn len(&self) -> usize {
        self.s.len()
    }
    pub fn push(&mut self, s: &str, is_user: bool) -> R<()> {
        spend_bytes(s.len())?;
        if is_user && !s.is_empty() {
            self.mark(self.s.len(), self.s.len() + s.len());
        }
        self.s.push_str(s);
        Ok(())
    }
    pub fn push_char(&mut self, c: char, is_user: bool) -> R<()> {
        spend_bytes(CHAR_COST)?;
        self.push(c.encode_utf8(&mut [0; 4]), is_user)
    }
    pub fn push_text(&mut self, t: &Text) -> R<()> {
        self.push_cut(t, 0, t.len())
    }
    pub fn push_cut(&mut self, t: &Text, from: usize, to: usize) -> R<()> {
        spend_bytes(to - from)?;
        let at = self.s.len();
        if let Some(user) = &t.user {
            let first = user.partition_point(|x| x.1 <= from);
            for &(a, b) in user[first..].iter().take_while(|x| x.0 < to) {
                spend_bytes(16)?;
                self.mark(at + a.max(from) - from, at + b.min(to) - from);
            }
        }
        self.s.push_str(&t.s[from..to]);
        Ok(())
    }
    fn mark(&mut self, from: usize, to: usize) {
        match self.user.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => self.user.push((from, to)),
        }
    }
    pub fn finish(self) -> Text {
        let user = if self.user.is_empty() { None } else { Some(Arc::new(self.user)) };
        Text { s: self.s.into(), user }
    }
    pub fn into_parts(self) -> (String, Ranges) {
        (self.s, self.user)
    }
}
