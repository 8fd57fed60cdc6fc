//! What is known of a logged function, and the start of its calls.

mod call;

use std::{
    borrow::Cow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, OnceLock},
    time::Instant,
};

use logkit::{Gate, Level, Redactor, SpanId, Text, Timestamp};
use pyo3::{
    prelude::*,
    types::{PyDict, PyString, PyTuple},
};

use crate::{
    context::{self, Mark, Within},
    logger::target::{self, Target},
    redaction::Redaction,
    render::{self, Key, Plan, Renderer, Treatment},
};
use call::{Call, Objects, State, Texts};

/// A logged function: its decorator makes one, and its wrapper begins calls with it.
#[pyclass(frozen, module = "logkit._native")]
pub(crate) struct Site {
    pub(crate) name: Text,
    pub(crate) module: Text,
    pub(crate) level: Level,
    /// A call that goes well is logged if it takes that long.
    pub(crate) slow_ms: f64,
    parameters: Vec<String>,
    /// Names of arguments that are left out.
    skipped: Vec<String>,
    logger: Option<Arc<Target>>,
    limit: usize,
    /// A call is logged if a random number is not above this; errors always are.
    sample: u64,
    redact: Redact,
    known: OnceLock<Known>,
    arg_types: OnceLock<Text>,
    kwarg_types: OnceLock<Text>,
}

/// What a function says of secrets.
enum Redact {
    /// Its logger says it.
    Inherit,
    Off,
    Own(Arc<Redactor>, Option<Arc<Py<PyAny>>>),
}

/// What is known once the secrets are.
struct Known {
    /// What finds them.
    redactor: Option<Arc<Redactor>>,
    treatments: Box<[Treatment]>,
    /// Names of the first call that had some.
    keys: OnceLock<Box<[Key]>>,
}

/// How positional arguments are rendered.
struct ByPlace<'a> {
    parameters: &'a [String],
    treatments: &'a [Treatment],
}

impl Plan for ByPlace<'_> {
    #[inline]
    fn treatment(&self, idx: usize) -> Treatment {
        if let Some(treatment) = self.treatments.get(idx) {
            return *treatment;
        }
        // The last parameter may take all the others.
        match (self.parameters.last(), self.treatments.last()) {
            (Some(name), Some(treatment)) if name.starts_with('*') => *treatment,
            _ => Treatment::Show,
        }
    }

    #[inline]
    fn name(&self, idx: usize) -> Option<&str> {
        self.parameters
            .get(idx)
            .map(String::as_str)
            .filter(|name| !name.starts_with('*'))
    }
}

#[pymethods]
impl Site {
    /// A function of that name; `parameters` names its positional parameters.
    #[new]
    #[pyo3(signature = (
        function_name, module, parameters, *, level = "DEBUG", logger = None, max_repr_length = Some(2048),
        sample_rate = None, skip_args = Vec::new(), redact = None, slow_ms = None
    ))]
    fn new(
        function_name: &str,
        module: &str,
        parameters: Vec<String>,
        level: &str,
        logger: Option<Bound<'_, PyAny>>,
        max_repr_length: Option<i64>,
        sample_rate: Option<f64>,
        skip_args: Vec<String>,
        redact: Option<Bound<'_, PyAny>>,
        slow_ms: Option<f64>,
    ) -> PyResult<Site> {
        Ok(Site {
            name: render::keep(function_name),
            module: render::keep(module),
            level: Level::parse(level),
            slow_ms: slow_ms.unwrap_or_default(),
            parameters,
            skipped: skip_args,
            logger: logger
                .map(|logger| target::of(&logger))
                .transpose()?
                .map(Arc::new),
            limit: limit_of(max_repr_length),
            // Saturates: 1.0 is everything.
            sample: sample_rate.map_or(u64::MAX, |rate| (rate * u64::MAX as f64) as u64),
            redact: match redact {
                None => Redact::Inherit,
                Some(redact) => match Redaction::of(&redact)? {
                    Redaction { redactor: None, .. } => Redact::Off,
                    Redaction {
                        redactor: Some(redactor),
                        judge,
                    } => Redact::Own(redactor, judge),
                },
            },
            known: OnceLock::new(),
            arg_types: OnceLock::new(),
            kwarg_types: OnceLock::new(),
        })
    }

    /// Begins a call, and enters its span: `None` if nothing of it is logged. Never raises.
    fn begin<'py>(
        slf: &Bound<'py, Site>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> Option<Call> {
        catch_unwind(AssertUnwindSafe(|| start(slf, args, kwargs))).unwrap_or_default()
    }
}

fn start<'py>(
    slf: &Bound<'py, Site>,
    args: &Bound<'py, PyTuple>,
    kwargs: &Bound<'py, PyDict>,
) -> Option<Call> {
    let py = slf.py();
    let site = slf.get();
    let target = match &site.logger {
        Some(target) => Arc::clone(target),
        None => target::current(py)?,
    };
    let gate = Gate::of(site.level.number(), target.level()).sampled(site.sample);
    if gate == Gate::Off || logkit::is_silent() || context::is_silent(py) {
        return None;
    }
    let renderer = site.renderer(&target);
    let parent = context::innermost(py).or_else(|| target.root());
    let is_full = gate == Gate::Full;
    let objects = (!is_full || target.wants_objects()).then(|| Objects {
        args: args.clone().unbind(),
        kwargs: kwargs.clone().unbind(),
    });
    let texts = is_full.then(|| site.texts(&renderer, args, kwargs));
    let span = is_full.then(SpanId::random);
    // A call that is logged only if it fails is no span: what it calls may be logged.
    let mark = Mark::now(span.or(parent));
    Some(Call::new(
        slf.clone().unbind(),
        span,
        mark,
        State {
            target,
            renderer,
            gate,
            parent,
            within: is_full.then(|| Within::enter(mark)),
            texts,
            objects,
            active: None,
            resumed: None,
            timestamp: Timestamp::now(),
            started: Instant::now(),
        },
    ))
}

impl Site {
    fn renderer(&self, target: &Target) -> Renderer {
        let redaction = match &self.redact {
            Redact::Off => Redaction::OFF,
            Redact::Own(redactor, judge) => Redaction {
                redactor: Some(Arc::clone(redactor)),
                judge: judge.clone(),
            },
            Redact::Inherit => target.redaction(),
        };
        Renderer {
            limit: self.limit,
            redactor: redaction.redactor,
            judge: redaction.judge,
            binary_meta: target.binary_meta(),
        }
    }

    /// The texts of arguments; functions that this calls are not logged.
    pub(crate) fn texts(
        &self,
        renderer: &Renderer,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
    ) -> Texts {
        logkit::rendering(|| {
            self.with_known(renderer, |known| {
                let mut texts = Texts::default();
                if !args.is_empty() {
                    let plan = ByPlace {
                        parameters: &self.parameters,
                        treatments: &known.treatments,
                    };
                    texts.args = renderer.planned_args(args, &plan).into();
                    texts.arg_types = cached(&self.arg_types, renderer.planned_types(args, &plan));
                }
                if !kwargs.is_empty() {
                    let keys = known.keys.get();
                    let keys = keys.unwrap_or_else(|| {
                        let keys = self.keys(renderer, kwargs);
                        known.keys.get_or_init(|| keys)
                    });
                    texts.kwargs = renderer.known_kwargs(kwargs, keys).into();
                    let types = renderer.known_kwarg_types(kwargs, keys);
                    texts.kwarg_types = cached(&self.kwarg_types, types);
                }
                texts
            })
        })
        .unwrap_or_default()
    }

    /// The arguments themselves, without secrets.
    pub(crate) fn blanked<'py>(
        &self,
        renderer: &Renderer,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        self.with_known(renderer, |known| {
            let plan = ByPlace {
                parameters: &self.parameters,
                treatments: &known.treatments,
            };
            Ok((
                renderer.blanked_args(args, &plan)?,
                renderer.blanked_dict(kwargs, |name| self.is_skipped(name))?,
            ))
        })
    }

    fn with_known<R>(&self, renderer: &Renderer, then: impl FnOnce(&Known) -> R) -> R {
        let known = self.known.get_or_init(|| self.find_out(renderer));
        let is_same = match (&known.redactor, &renderer.redactor) {
            (Some(then), Some(now)) => Arc::ptr_eq(then, now),
            (then, now) => then.is_none() && now.is_none(),
        };
        if is_same {
            then(known)
        } else {
            // Its logger was replaced by one with other rules.
            then(&self.find_out(renderer))
        }
    }

    fn find_out(&self, renderer: &Renderer) -> Known {
        let treatments = self
            .parameters
            .iter()
            .map(|name| self.treatment(renderer, name));
        Known {
            redactor: renderer.redactor.clone(),
            treatments: treatments.collect(),
            keys: OnceLock::new(),
        }
    }

    fn keys(&self, renderer: &Renderer, kwargs: &Bound<'_, PyDict>) -> Box<[Key]> {
        let py = kwargs.py();
        // Those that are left out are known by name: another call may have others of them.
        let skipped = self
            .skipped
            .iter()
            .map(|name| Key::new(&PyString::intern(py, name), Treatment::Skip));
        render::items(kwargs, 64)
            .into_iter()
            .filter_map(|(key, _)| {
                let key = key.cast_into_exact::<PyString>().ok()?;
                let name = key.to_cow().ok()?.into_owned();
                let is_simple = name.is_ascii();
                is_simple.then(|| Key::new(&key, self.treatment(renderer, &name)))
            })
            .chain(skipped)
            .collect()
    }

    fn treatment(&self, renderer: &Renderer, name: &str) -> Treatment {
        let name = name.trim_start_matches('*');
        if self.is_skipped(name) {
            Treatment::Skip
        } else if renderer.is_secret(name) {
            Treatment::Blank
        } else {
            Treatment::Show
        }
    }

    fn is_skipped(&self, name: &str) -> bool {
        self.skipped.iter().any(|skipped| skipped == name)
    }
}

/// Most calls of a function have arguments of the same types.
fn cached(slot: &OnceLock<Text>, text: String) -> Text {
    match slot.get_or_init(|| render::keep(&text)) {
        Cow::Borrowed(known) if *known == text => Cow::Borrowed(known),
        _ => text.into(),
    }
}

/// Characters of a field: `None`, 0 and less are no limit.
pub(crate) fn limit_of(length: Option<i64>) -> usize {
    length
        .and_then(|length| usize::try_from(length).ok())
        .unwrap_or_default()
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Site>()?;
    module.add_class::<Call>()?;
    module.add_function(wrap_pyfunction!(context::set_context, module)?)?;
    module.add_function(wrap_pyfunction!(context::use_context, module)?)?;
    module.add_function(wrap_pyfunction!(capture_frames, module)?)
}

/// Leaves the frames of that code out of tracebacks.
#[pyfunction]
#[pyo3(signature = (*codes))]
fn capture_frames(codes: &Bound<'_, PyTuple>) {
    let codes: Vec<Bound<'_, PyAny>> = codes.iter().collect();
    crate::traceback::hide(&codes);
}
