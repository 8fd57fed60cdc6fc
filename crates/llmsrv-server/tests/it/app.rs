//! What a person sees and does in the web app, in the words of a [`Tab`].

use crate::tab::Tab;

/// The last answer.
pub const LAST: &str = "[...document.querySelectorAll('.message.assistant')].at(-1)";
/// The text of the last answer.
pub const ANSWER: &str =
    "[...document.querySelectorAll('.message.assistant .text')].at(-1)?.textContent ?? ''";
/// Whether no answer is on its way.
pub const QUIET: &str = "document.querySelector('#send')?.getAttribute('aria-label') === 'Send' && \
    !document.querySelector('.coming')";
/// What is said below the messages.
pub const NOTES: &str =
    "[...document.querySelectorAll('.message .note')].map((it) => it.textContent).join()";
/// What the page tells at its edge.
pub const NOTICE: &str = "document.querySelector('#notice').hidden ? '' : document.querySelector('#notice span').textContent";
/// The conversations in the list.
pub const TITLES: &str =
    "[...document.querySelectorAll('#chats a span')].map((it) => it.textContent).join()";
/// The title of the open dialog.
pub const DIALOG: &str = "document.querySelector('#dialog').open ? document.querySelector('#dialog h2').textContent : ''";

/// What is cut off or lies outside of the window.
pub const OUTSIDE: &str = "[...document.querySelectorAll('main *, dialog[open] *')].filter((it) => \
    { const box = it.getBoundingClientRect(); return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1) \
    && !it.closest('pre, .table, .unseen'); }).map((it) => it.outerHTML.slice(0, 80)).join()";

/// Chooses a model of the new conversation.
pub fn choose(tab: &mut Tab, model: &str) {
    let name = format!("{model}:latest");
    tab.wait(
        &format!(
            "[...document.querySelectorAll('#model option')].some((it) => it.value === '{name}')"
        ),
        true,
    );
    tab.eval(&format!(
        "(() => {{ const it = document.querySelector('#model'); it.value = '{name}'; \
         it.dispatchEvent(new Event('change')); document.querySelector('#prompt').focus(); }})()"
    ));
}

/// Sends a message.
pub fn send(tab: &mut Tab, text: &str) {
    tab.eval("document.querySelector('#prompt').focus()");
    tab.write(text);
    tab.press("Enter");
}

/// Clicks what the page may still have to build.
pub fn click(tab: &mut Tab, selector: &str) {
    tab.wait(
        &format!("document.querySelector({selector:?}) !== null"),
        true,
    );
    tab.eval(&format!("document.querySelector({selector:?}).click()"));
}

/// Goes to a pane and waits until it is built; "" stays where one is.
pub fn go(tab: &mut Tab, url: &str, pane: &str) {
    if pane.is_empty() {
        return;
    }
    tab.goto(&format!("{url}#/{pane}"));
    let parts = match pane {
        "compare" => ".side option",
        _ => ".models li, .tile",
    };
    tab.wait(
        &format!("document.querySelectorAll('{parts}').length > 3"),
        true,
    );
}

/// Clicks the button of the last answer or message with this name.
pub fn act(tab: &mut Tab, role: &str, name: &str) {
    tab.eval(&format!(
        "[...document.querySelectorAll('.message.{role} .foot button')].findLast((it) => \
         it.getAttribute('aria-label') === '{name}').click()"
    ));
}
