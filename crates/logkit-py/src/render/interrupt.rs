//! Ctrl-C while a value is rendered.

use pyo3::{exceptions::PyKeyboardInterrupt, intern, prelude::*};

/// An interrupt that came while a value was rendered is meant for the program, and comes again. One that
/// the value itself raised is only an error.
#[cold]
pub(super) fn pass_on_interrupt(error: &Bound<'_, PyAny>) {
    if error.is_instance_of::<PyKeyboardInterrupt>() && !was_raised(error).unwrap_or(true) {
        let py = error.py();
        let _ = py
            .import(intern!(py, "_thread"))
            .and_then(|thread| thread.call_method0(intern!(py, "interrupt_main")));
    }
}

/// True if it comes from a statement `raise`.
fn was_raised(error: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = error.py();
    let mut step = error.getattr(intern!(py, "__traceback__"))?;
    loop {
        let next = step.getattr(intern!(py, "tb_next"))?;
        if next.is_none() {
            break;
        }
        step = next;
    }
    let code = step
        .getattr(intern!(py, "tb_frame"))?
        .getattr(intern!(py, "f_code"))?;
    let at: usize = step.getattr(intern!(py, "tb_lasti"))?.extract()?;
    let instruction = code.getattr(intern!(py, "co_code"))?.get_item(at)?;
    let names = py
        .import(intern!(py, "dis"))?
        .getattr(intern!(py, "opname"))?;
    names
        .get_item(instruction)?
        .eq(intern!(py, "RAISE_VARARGS"))
}
