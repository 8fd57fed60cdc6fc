//! The bounds of templates: half of the stack of the server's threads, some hundred megabytes, and
//! a few seconds.
#![expect(
    unsafe_code,
    reason = "an allocator that counts, and hands everything on to the system's"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Zoned;
use llmsrv_api::native::{Message, Tool};
use llmsrv_chat::{Error, Prompt, Template};

/// Knows how much memory is in use, and how much was at most.
struct Measuring;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Measuring {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let in_use = IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(in_use, Ordering::Relaxed);
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Measuring = Measuring;

/// Parses and renders a template, and looks at what that took.
pub(crate) fn check(text: &str, parse: impl Fn(&str) -> Result<Template, Error> + Send + Sync) {
    let before = IN_USE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let began = Instant::now();
    thread::scope(|scope| {
        let small = thread::Builder::new().stack_size(STACK_BYTES);
        let rendering = small.spawn_scoped(scope, || render(text, &parse));
        rendering.expect("a thread").join().expect("no panic");
    });
    let took = began.elapsed();
    let peak = PEAK.load(Ordering::Relaxed) - before;
    assert!(took < MOST_TIME, "{took:?}");
    assert!(peak < MOST_BYTES, "{peak} bytes");
}

fn render(text: &str, parse: &impl Fn(&str) -> Result<Template, Error>) {
    let Ok(template) = parse(text) else { return };
    let message = |role: &str, content: &str| Message {
        role: role.into(),
        content: content.into(),
        ..Message::default()
    };
    let messages = [
        message("system", "S"),
        message("user", "U"),
        message("assistant", "A"),
    ];
    let tools = [Tool::default()];
    let mut prompt = Prompt::new(&messages, Zoned::default());
    prompt.tools = &tools;
    let _ = template.render(&prompt);
    let _ = (
        template.capabilities(),
        template.thinking_tags(),
        template.tool_tag(),
    );
}

const STACK_BYTES: usize = 1 << 20;
/// The deadline of a rendering is two seconds; one step more may take some, with what fuzzing adds.
const MOST_TIME: Duration = Duration::from_secs(8);
const MOST_BYTES: usize = 768 << 20;
