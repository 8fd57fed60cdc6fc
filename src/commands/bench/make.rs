//! Models with random weights.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::Context as _;
use llmsrv_convert::{Error, Family, SHAPES, Shape, Target, synthesize};

use crate::{
    cli::BenchArgs,
    connect::runtime,
    failure::{Code, Failure},
    format, term,
};

/// Writes one.
pub fn run(text: &str, args: &BenchArgs, quiet: bool) -> Result<(), Failure> {
    let Some(path) = &args.output else {
        return Err(Failure::usage("--make-model needs --output FILE"));
    };
    if path.is_file() {
        let text = format!("{} exists", path.display());
        return Err(Failure::failed(text).hint("remove it, or name another file"));
    }
    let (name, shape) = shape(text)?;
    let target: Target = args.quantize.parse().map_err(Failure::usage)?;
    let mut steps = super::steps(quiet);
    let interrupted = Arc::new(AtomicBool::new(false));
    let signals = runtime()?;
    signals.spawn({
        let interrupted = interrupted.clone();
        async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                interrupted.store(true, Ordering::Relaxed);
            }
        }
    });
    let mut progress = |done, total| {
        steps.amount("writing random weights", done, total);
        if interrupted.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    };
    // Under its name there is a whole model, or what was there before; a device is written to.
    let is_device = path.exists() && !path.is_file();
    let mut part = path.clone();
    if !is_device {
        part.as_mut_os_string().push(".part");
    }
    let cannot = || format!("cannot make {}", path.display());
    let made = synthesize(&part, name, &shape, target, &mut progress);
    if matches!(made, Err(Error::Cancelled)) {
        return Err(Failure::new(Code::Interrupted, "interrupted")
            .hint(format!("{} was not made", path.display())));
    }
    made.with_context(cannot)?;
    if !is_device {
        std::fs::rename(&part, path).with_context(cannot)?;
    }
    steps.stop();
    let size = path.metadata()?.len();
    if args.json {
        term::json(&serde_json::json!({ "file": path, "bytes": size, "type": target.name() }))?;
    } else if !quiet {
        term::note(format_args!("{}: {}", path.display(), format::size(size)));
    }
    Ok(())
}

/// Reads `NAME` or `NAME:key=value,...`.
fn shape(text: &str) -> Result<(&'static str, Shape), Failure> {
    let (name, changes) = text.split_once(':').unwrap_or((text, ""));
    let wrong = |message: String| {
        let names: Vec<&str> = SHAPES.iter().map(|row| row.0).collect();
        Failure::usage(message).hint(format!(
            "shapes are {}; changes of one are {}=NUMBER, tied=true|false and family=NAME",
            names.join(", "),
            KEYS.map(|row| row.0).join("=NUMBER, "),
        ))
    };
    let row = SHAPES.iter().find(|row| row.0.eq_ignore_ascii_case(name));
    let (_, long_name, shape) = row.ok_or_else(|| wrong(format!("there is no shape {name:?}")))?;
    let mut shape = *shape;
    for change in changes.split(',').filter(|change| !change.is_empty()) {
        let wrong = || wrong(format!("{change:?} is not a change of a shape"));
        let (key, value) = change.split_once('=').ok_or_else(wrong)?;
        match key {
            "tied" => shape.tied = value.parse().map_err(|_| wrong())?,
            "family" => {
                let family = Family::ALL.iter().find(|family| family.name() == value);
                shape.family = *family.ok_or_else(wrong)?;
            }
            key => {
                let row = KEYS.iter().find(|row| row.0 == key).ok_or_else(wrong)?;
                *(row.1)(&mut shape) = value.parse().map_err(|_| wrong())?;
            }
        }
    }
    Ok((long_name, shape))
}

type Field = fn(&mut Shape) -> &mut usize;

const KEYS: [(&str, Field); 9] = [
    ("layers", |shape| &mut shape.n_layers),
    ("width", |shape| &mut shape.width),
    ("hidden", |shape| &mut shape.hidden),
    ("heads", |shape| &mut shape.n_heads),
    ("kv_heads", |shape| &mut shape.n_kv_heads),
    ("head_dim", |shape| &mut shape.head_dim),
    ("vocab", |shape| &mut shape.n_vocab),
    ("experts", |shape| &mut shape.n_experts),
    ("used", |shape| &mut shape.n_used),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_named_and_changed() {
        assert_eq!(shape("1B").unwrap().1.n_layers, 16);
        let (_, changed) = shape("8b:layers=2,vocab=4096,tied=true,family=qwen3").unwrap();
        assert_eq!((changed.n_layers, changed.width), (2, 4096));
        assert_eq!((changed.n_vocab, changed.family), (4096, Family::Qwen3));
        assert!(changed.tied);
        for wrong in [
            "9b",
            "1b:layers",
            "1b:layers=-1",
            "1b:depth=3",
            "1b:family=gpt",
        ] {
            let failure = shape(wrong).unwrap_err();
            assert_eq!(failure.code, Code::Usage, "{wrong}");
            assert!(failure.hint.unwrap().contains("0.5b"), "{wrong}");
        }
    }
}
