//! TOML files as a flat list of values with their lines. The border's own rules are those of lib.rs.

use crate::fail::{fail, Kind, R};
use crate::{bytes, finish, on_own_thread};
use std::ffi::{c_char, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};
use toml::de::{DeTable, DeValue};

#[derive(Clone, Copy)]
#[repr(i32)]
enum Form {
    Table = 0,
    Text = 1,
    Whole = 2,
    Real = 3,
    Flag = 4,
    List = 5,
    Date = 6,
}

struct Value {
    table: String,
    table_idx: usize,
    key: String,
    text: String,
    form: Form,
    is_listed: bool,
    at: usize,
}

#[repr(C)]
pub struct BridgeTomlItem {
    table: *mut c_char,
    table_idx: usize,
    key: *mut c_char,
    text: *mut c_char,
    form: i32,
    is_listed: i32,
    line: i32,
}

#[repr(C)]
pub struct BridgeToml {
    items: *mut BridgeTomlItem,
    n_items: usize,
}

fn line_of(source: &str, at: usize) -> usize {
    1 + source.as_bytes()[..at.min(source.len())].iter().filter(|&&byte| byte == b'\n').count()
}

fn at_line<T>(source: &str, at: usize, words: &str) -> R<T> {
    fail(Kind::Syntax, format!("{}: {}", line_of(source, at), words.replace('\n', ", ")))
}

/// A whole number in any of TOML's bases as decimal; None: more than 64 bits.
fn decimal(text: &str, radix: u32) -> Option<String> {
    i64::from_str_radix(text, radix).ok().map(|n| n.to_string())
}

struct Reader<'a> {
    source: &'a str,
    out: Vec<Value>,
}

impl Reader<'_> {
    fn push(&mut self, table: &(String, usize), key: &str, text: String, form: Form, is_listed: bool, at: usize) {
        let (table, table_idx) = table.clone();
        self.out.push(Value { table, table_idx, key: key.into(), text, form, is_listed, at });
    }

    fn scalar(&mut self, table: &(String, usize), key: &str, value: &DeValue, is_listed: bool, at: usize) -> R<()> {
        let (text, form) = match value {
            DeValue::String(text) => (text.to_string(), Form::Text),
            DeValue::Integer(n) => match decimal(n.as_str(), n.radix()) {
                Some(text) => (text, Form::Whole),
                None => return at_line(self.source, at, &format!("{key}: {n} has more than 64 bits")),
            },
            DeValue::Float(x) => (x.as_str().into(), Form::Real),
            DeValue::Boolean(flag) => (flag.to_string(), Form::Flag),
            DeValue::Datetime(date) => (date.to_string(), Form::Date),
            DeValue::Array(_) => (String::new(), Form::List),
            DeValue::Table(_) => (String::new(), Form::Table),
        };
        self.push(table, key, text, form, is_listed, at);
        Ok(())
    }

    fn table(&mut self, name: &(String, usize), table: &DeTable) -> R<()> {
        let is_top = name.0.is_empty();
        for (key, value) in table.iter() {
            let (word, at) = (key.get_ref().as_ref(), key.span().start);
            match value.get_ref() {
                DeValue::Table(inner) if is_top => {
                    self.push(&(word.into(), 0), "", String::new(), Form::Table, false, at);
                    self.table(&(word.into(), 0), inner)?;
                }
                DeValue::Array(items) if is_top && items.iter().any(|item| item.get_ref().is_table()) => {
                    for (i, item) in items.iter().enumerate() {
                        let at = item.span().start;
                        let DeValue::Table(inner) = item.get_ref() else {
                            return at_line(self.source, at, &format!("{word}: tables and other values in one list"));
                        };
                        self.push(&(word.into(), i), "", String::new(), Form::Table, false, at);
                        self.table(&(word.into(), i), inner)?;
                    }
                }
                DeValue::Array(items) => {
                    self.push(name, word, String::new(), Form::List, false, at);
                    for item in items.iter() {
                        self.scalar(name, word, item.get_ref(), true, item.span().start)?;
                    }
                }
                other => self.scalar(name, word, other, false, at)?,
            }
        }
        Ok(())
    }
}

fn read(source: &str) -> R<Vec<Value>> {
    let table = match DeTable::parse(source) {
        Ok(table) => table,
        Err(e) => return at_line(source, e.span().map_or(0, |span| span.start), e.message()),
    };
    let mut reader = Reader { source, out: vec![] };
    reader.table(&(String::new(), 0), table.get_ref())?;
    // A stable sort: a table comes before what is in it, a list before its values.
    reader.out.sort_by_key(|value| value.at);
    Ok(reader.out)
}

fn c_text(source: &str, text: String, at: usize) -> R<CString> {
    CString::new(text).or_else(|_| at_line(source, at, "a text may not hold NUL"))
}

/// # Safety
/// See kvick_bridge.h.
#[no_mangle]
pub unsafe extern "C" fn kvick_bridge_toml_read(
    out: *mut BridgeToml,
    source: *const u8,
    n_bytes: usize,
    note: *mut u8,
    note_cap: usize,
) -> i32 {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let source = match std::str::from_utf8(bytes(source, n_bytes)) {
            Ok(source) => source,
            Err(e) => {
                let line = 1 + bytes(source, e.valid_up_to()).iter().filter(|&&byte| byte == b'\n').count();
                return fail(Kind::Syntax, format!("{line}: not UTF-8"));
            }
        };
        let values = on_own_thread(|| read(source))?;
        let ends: Vec<usize> = source.match_indices('\n').map(|(at, _)| at).collect();
        let mut texts = vec![];
        for value in values {
            let line = 1 + ends.partition_point(|&end| end < value.at) as i32;
            let table = c_text(source, value.table, value.at)?;
            let key = c_text(source, value.key, value.at)?;
            let text = c_text(source, value.text, value.at)?;
            texts.push((table, value.table_idx, key, text, value.form, value.is_listed, line));
        }
        let items: Vec<BridgeTomlItem> = texts
            .into_iter()
            .map(|(table, table_idx, key, text, form, is_listed, line)| BridgeTomlItem {
                table: table.into_raw(),
                table_idx,
                key: key.into_raw(),
                text: text.into_raw(),
                form: form as i32,
                is_listed: is_listed.into(),
                line,
            })
            .collect();
        let items = items.into_boxed_slice();
        *out = BridgeToml { n_items: items.len(), items: Box::into_raw(items) as *mut BridgeTomlItem };
        Ok(())
    }));
    finish(result, note, note_cap)
}

/// # Safety
/// See kvick_bridge.h.
#[no_mangle]
pub unsafe extern "C" fn kvick_bridge_toml_free(toml: *mut BridgeToml) {
    let toml = &mut *toml;
    if !toml.items.is_null() {
        for item in Box::from_raw(std::ptr::slice_from_raw_parts_mut(toml.items, toml.n_items)).iter() {
            for text in [item.table, item.key, item.text] {
                drop(CString::from_raw(text));
            }
        }
    }
    *toml = BridgeToml { items: std::ptr::null_mut(), n_items: 0 };
}
