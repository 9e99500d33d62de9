//! kvick's bridge to Rust. The border is kvick_bridge.h; nothing here panics across it.

mod ast;
mod date;
mod eval;
mod fail;
mod filters;
mod format;
mod gbnf;
mod grammar;
mod json;
mod methods;
mod ops;
mod predicates;
mod request;
mod schema;
mod syntax;
mod text;
mod toml_file;
mod value;

use fail::{Fail, Kind, R};
use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Once;
use std::thread::JoinHandle;

/// The evaluator's and the parser's depth limits fit into this with room to spare; untouched pages cost nothing.
const STACK_BYTES: usize = 64 << 20;

const SPECIALS: [&str; 4] = ["bos_token", "eos_token", "unk_token", "pad_token"];

pub struct ChatTemplate {
    template: ast::Template,
    specials: Vec<(&'static str, Option<String>)>,
}

#[repr(C)]
pub struct BridgeSpan {
    from: usize,
    to: usize,
}

#[repr(C)]
pub struct BridgeText {
    ptr: *mut u8,
    n_bytes: usize,
    user: *mut BridgeSpan,
    n_user: usize,
}

type Job = Box<dyn FnOnce() + Send>;

/// A thread with a known stack that does one job after the other for the thread that made it. It stays: a thread that
/// is new gets its first turn only behind all that compute, tens of milliseconds later when they take every core.
struct Helper {
    jobs: Option<Sender<Job>>,
    done: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    fn start() -> Option<Helper> {
        let (jobs, queue) = channel::<Job>();
        let (tell_done, done) = channel();
        let serve = move || {
            while let Ok(job) = queue.recv() {
                job();
                if tell_done.send(()).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("bridge".into()).stack_size(STACK_BYTES).spawn(serve).ok()?;
        Some(Helper { jobs: Some(jobs), done, thread: Some(thread) })
    }

    /// Returns when the job is done and gone. False: the thread is not there.
    fn run(&self, job: Job) -> bool {
        self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok()) && self.done.recv().is_ok()
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

thread_local! {
    static HELPER: RefCell<Option<Helper>> = const { RefCell::new(None) };
}

/// Runs on a thread of its own: a known stack, and a panic that ends only this.
fn on_own_thread<T: Send>(work: impl FnOnce() -> R<T> + Send) -> R<T> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    let internal = |words: &str| Err(Fail { kind: Kind::Internal, words: words.into() });
    let mut result = None;
    let out = &mut result;
    let job: Box<dyn FnOnce() + Send + '_> = Box::new(move || *out = Some(catch_unwind(AssertUnwindSafe(work))));
    // Safety: run returns only when the job, and so all that it borrows from here, is gone.
    let job: Job = unsafe { std::mem::transmute::<Box<dyn FnOnce() + Send + '_>, Job>(job) };
    let was_run = HELPER.with(|helper| {
        let mut helper = helper.borrow_mut();
        if helper.is_none() {
            *helper = Helper::start();
        }
        helper.as_ref().is_some_and(|helper| helper.run(job))
    });
    match result {
        Some(Ok(done)) if was_run => done,
        _ if was_run => internal("internal error in the bridge"),
        _ => internal("no thread for the bridge"),
    }
}

/// # Safety
/// ptr: n readable bytes, or n is 0.
unsafe fn bytes<'a>(ptr: *const u8, n: usize) -> &'a [u8] {
    if n == 0 { &[] } else { std::slice::from_raw_parts(ptr, n) }
}

/// # Safety
/// note: cap writable bytes.
unsafe fn write_note(note: *mut u8, cap: usize, words: &str) {
    if note.is_null() || cap == 0 {
        return;
    }
    let mut n = words.len().min(cap - 1);
    while !words.is_char_boundary(n) {
        n -= 1;
    }
    std::ptr::copy_nonoverlapping(words.as_ptr(), note, n);
    *note.add(n) = 0;
}

/// # Safety
/// As write_note.
unsafe fn finish(result: std::thread::Result<R<()>>, note: *mut u8, cap: usize) -> i32 {
    match result {
        Ok(Ok(())) => 0,
        Ok(Err(e)) => {
            write_note(note, cap, &e.words);
            e.kind as i32
        }
        Err(_) => {
            write_note(note, cap, "internal error in the bridge");
            Kind::Internal as i32
        }
    }
}

/// # Safety
/// See kvick_bridge.h.
#[no_mangle]
pub unsafe extern "C" fn kvick_bridge_template_create(
    out: *mut *mut ChatTemplate,
    source: *const u8,
    n_bytes: usize,
    special_ptrs: *const *const u8,
    special_n_bytes: *const usize,
    note: *mut u8,
    note_cap: usize,
) -> i32 {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let source = bytes(source, n_bytes);
        let mut specials = vec![];
        for (i, name) in SPECIALS.iter().enumerate() {
            let ptr = *special_ptrs.add(i);
            let text = (!ptr.is_null())
                .then(|| String::from_utf8_lossy(bytes(ptr, *special_n_bytes.add(i))).into_owned());
            specials.push((*name, text));
        }
        let template = on_own_thread(|| syntax::read(source))?;
        *out = Box::into_raw(Box::new(ChatTemplate { template, specials }));
        Ok(())
    }));
    finish(result, note, note_cap)
}

/// # Safety
/// See kvick_bridge.h.
#[no_mangle]
pub unsafe extern "C" fn kvick_bridge_template_destroy(template: *mut ChatTemplate) {
    if !template.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let template = Box::from_raw(template);
            let _ = on_own_thread(move || {
                drop(template);
                Ok(())
            });
        }));
    }
}

/// # Safety
/// See kvick_bridge.h.
#[no_mangle]
pub unsafe extern "C" fn kvick_bridge_template_render(
    template: *const ChatTemplate,
    request: *const u8,
    n_bytes: usize,
    now_s: i64,
    out: *mut BridgeText,
    note: *mut u8,
    note_cap: usize,
) -> i32 {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let template = &*template;
        let Ok(request) = std::str::from_utf8(bytes(request, n_bytes)) else {
            return fail::fail(Kind::Request, "the request is not UTF-8");
        };
        let (text, user) =
            on_own_thread(|| request::render(&template.template, request, &template.specials, now_s))?;
        let user: Vec<BridgeSpan> = user.into_iter().map(|(from, to)| BridgeSpan { from, to }).collect();
        let (text, user) = (text.into_bytes().into_boxed_slice(), user.into_boxed_slice());
        *out = BridgeText {
            n_bytes: text.len(),
            ptr: Box::into_raw(text) as *mut u8,
            n_user: user.len(),
            user: Box::into_raw(user) as *mut BridgeSpan,
        };
        Ok(())
    }));
    finish(result, note, note_cap)
}

/// # Safety
/// See kvick_bridge.h.
#[no_mangle]
pub unsafe extern "C" fn kvick_bridge_text_free(text: *mut BridgeText) {
    let text = &mut *text;
    if !text.ptr.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(text.ptr, text.n_bytes)));
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(text.user, text.n_user)));
    }
    *text = BridgeText { ptr: std::ptr::null_mut(), n_bytes: 0, user: std::ptr::null_mut(), n_user: 0 };
}
