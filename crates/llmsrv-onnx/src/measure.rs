//! How long a model of a file takes. To be called in a process of its own: the library may refuse a hostile model by
//! crashing.
#![expect(
    unsafe_code,
    reason = "new tensors are filled with zeros where the library has put them"
)]

use std::{
    path::Path,
    time::{Duration, Instant},
};

use ort::{
    memory::Allocator,
    value::{DynTensor, DynValue, Outlet, TensorElementType, ValueType},
};

use crate::{Error, Processor, Run, Runtime, runtime::failed};

/// Loads a model and runs it with zeros for all inputs; axes without a length are 1.
///
/// With another processor than the CPU, the CPU does nothing: a model that would need it is refused.
pub fn run(file: &Path, runtime: &Path, on: Processor) -> Result<Run, Error> {
    let runtime = Runtime::load(runtime, on)?;
    let begun = Instant::now();
    let mut session = runtime
        .builder()?
        .commit_from_file(file)
        .map_err(failed("loading the model"))?;
    let load_seconds = begun.elapsed().as_secs_f64();
    let (mut inputs, mut names) = (Vec::new(), Vec::new());
    for outlet in session.inputs() {
        let (tensor, name) = zeros(outlet)?;
        inputs.push((outlet.name().to_owned(), tensor));
        names.push(name);
    }
    let mut once = || {
        let given: Vec<(&str, &DynValue)> = inputs
            .iter()
            .map(|(name, tensor)| (name.as_str(), tensor))
            .collect();
        let begun = Instant::now();
        session.run(given).map(|_| begun.elapsed())
    };
    // The first run makes what the others find.
    once().map_err(failed("running the model"))?;
    let (begun, mut seconds) = (Instant::now(), Vec::new());
    while seconds.len() < MOST_RUNS
        && (seconds.len() < FEWEST_RUNS || begun.elapsed() < LONG_ENOUGH)
    {
        seconds.push(once().map_err(failed("running the model"))?.as_secs_f64());
    }
    Ok(Run {
        inputs: names,
        load_seconds,
        seconds,
    })
}

const FEWEST_RUNS: usize = 5;
const MOST_RUNS: usize = 1000;
const LONG_ENOUGH: Duration = Duration::from_secs(1);

/// Makes a tensor of zeros for an input; also says what it is.
fn zeros(outlet: &Outlet) -> Result<(DynValue, String), Error> {
    let refuse = |why: String| Error::Input(outlet.name().to_owned(), why);
    let ValueType::Tensor { ty, shape, .. } = outlet.dtype() else {
        return Err(refuse(
            "it is no tensor, and only tensors can be made up".into(),
        ));
    };
    if *ty == TensorElementType::String {
        return Err(refuse("texts cannot be made up".into()));
    }
    let shape: Vec<i64> = shape
        .iter()
        .map(|axis| if *axis < 0 { 1 } else { *axis })
        .collect();
    let n_values = shape.iter().try_fold(1_usize, |n, axis| {
        n.checked_mul(usize::try_from(*axis).ok()?)
    });
    let bytes = n_values
        .and_then(|n| ty.byte_size(n))
        .filter(|bytes| *bytes <= LARGEST_INPUT);
    let Some(bytes) = bytes else {
        return Err(refuse(format!(
            "shape {shape:?} is larger than 1 GiB, or of no known type"
        )));
    };
    let mut tensor = DynTensor::new(&Allocator::default(), *ty, shape.clone())
        .map_err(|error| refuse(error.to_string()))?;
    if bytes > 0 {
        // SAFETY: the tensor is in memory of the CPU (the default allocator), is that long (computed above from type
        // and shape, as the library does), and nobody else has it. All types but texts may be zero.
        unsafe { tensor.data_ptr_mut().cast::<u8>().write_bytes(0, bytes) };
    }
    Ok((
        tensor.into_dyn(),
        format!("{} {ty} {shape:?}", outlet.name()),
    ))
}

const LARGEST_INPUT: usize = 1 << 30;
