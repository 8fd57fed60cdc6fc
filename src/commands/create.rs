//! `llmsrv create`

mod files;

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use llmsrv_api::modelfile::{INSTRUCTIONS, Modelfile};
use llmsrv_config::nearest;
use llmsrv_convert::Imatrix;
use serde_json::{Map, Value, json};

use crate::{
    cli::CreateArgs, connect::Connection, context::Context, failure::Failure, local::Access, term,
    transfer,
};
use files::{Source, Uploader};

/// Makes a model: the files it needs are brought to the server, which does the rest.
pub fn run(context: &Context, args: &CreateArgs) -> Result<(), Failure> {
    let (modelfile, folder) = read(args).map_err(with_hint)?;
    if !context.global.quiet {
        for name in modelfile.ignored_parameters() {
            term::warning(format_args!("parameter {name} has no effect any more"));
        }
        for draft in modelfile.drafts() {
            let how = "LLMSRV_DRAFT_MODEL names the draft models of a server";
            term::warning(format_args!("DRAFT {draft} has no effect: {how}"));
        }
    }
    let order = Order::new(&modelfile, &folder, args).map_err(with_hint)?;
    let made = Connection::with(context, Access::Add, async |connection| {
        make(context, args, connection, order).await
    });
    made.map_err(|failure| with_hint(failure).context(format!("cannot create {}", args.model)))
}

/// What the server will be asked, files not yet uploaded.
struct Order {
    request: Map<String, Value>,
    files: Vec<(String, PathBuf)>,
    adapters: Vec<(String, PathBuf)>,
    imatrix: Option<PathBuf>,
}

impl Order {
    fn new(modelfile: &Modelfile, folder: &Path, args: &CreateArgs) -> Result<Order, Failure> {
        let mut order = Order {
            request: modelfile.request(),
            files: Vec::new(),
            adapters: Vec::new(),
            imatrix: args.imatrix.clone(),
        };
        if let Some(path) = &order.imatrix {
            // What is none is refused here, before it is brought anywhere.
            let read = Imatrix::read(path).map_err(anyhow::Error::new);
            read.with_context(|| format!("cannot use {}", path.display()))?;
        }
        let sources: Vec<Source> = match &args.from {
            Some(from) => vec![Source::find(Path::new(""), from)?],
            None => modelfile
                .from()
                .map(|from| Source::find(folder, from))
                .collect::<Result<_, _>>()?,
        };
        for source in sources {
            match source {
                Source::Model(name) => {
                    if order.request.insert("from".into(), json!(name)).is_some() {
                        return Err(anyhow::anyhow!(
                            "a model is made from one other model, not from several"
                        )
                        .into());
                    }
                }
                Source::Files(files) => order.files.extend(files),
            }
        }
        for adapter in modelfile.adapters() {
            match Source::find(folder, adapter)? {
                Source::Files(files) => order.adapters.extend(files),
                Source::Model(name) => {
                    return Err(anyhow::anyhow!("there is no adapter {name}").into());
                }
            }
        }
        order.request.insert("model".into(), json!(args.model));
        if let Some(quantize) = &args.quantize {
            order.request.insert("quantize".into(), json!(quantize));
        }
        Ok(order)
    }
}

/// Reads the Modelfile and returns it with the folder in which relative paths begin.
fn read(args: &CreateArgs) -> Result<(Modelfile, PathBuf), Failure> {
    let path = match (&args.file, &args.from) {
        (Some(path), _) => path.clone(),
        (None, Some(_)) => return Ok((Modelfile::default(), PathBuf::new())),
        (None, None) => PathBuf::from("Modelfile"),
    };
    let mut bytes = Vec::new();
    let file: Box<dyn std::io::Read> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        let open = std::fs::File::open(&path);
        Box::new(open.with_context(|| format!("cannot open the Modelfile {}", path.display()))?)
    };
    file.take(MAX_MODELFILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {}", path.display()))?;
    if bytes.len() as u64 > MAX_MODELFILE_BYTES {
        let text = format!("{} is too large for a Modelfile", path.display());
        return Err(Failure::failed(text));
    }
    let mut modelfile = Modelfile::parse(&bytes);
    if let (Err(llmsrv_api::modelfile::Error::NoFrom), Some(from)) = (&modelfile, &args.from) {
        // --from says what the file does not.
        modelfile = Modelfile::parse(&[format!("FROM {from}\n").as_bytes(), &bytes].concat());
    }
    let modelfile = modelfile.map_err(|error| {
        let failure = Failure::from(error).context(path.display().to_string());
        match mistyped(&bytes) {
            Some((typed, meant)) => failure.hint(format!("{typed}: did you mean {meant}?")),
            None => failure,
        }
    })?;
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    Ok((modelfile, folder))
}

/// Finds the first instruction that looks like a mistyped one.
fn mistyped(bytes: &[u8]) -> Option<(String, String)> {
    let text = String::from_utf8_lossy(bytes);
    text.lines().find_map(|line| {
        let word = line.split_whitespace().next()?.to_lowercase();
        let meant = nearest(&word, INSTRUCTIONS)?;
        (meant != word).then(|| (word.to_uppercase(), meant.to_uppercase()))
    })
}

/// Says what can be done about a file that no model can be made of.
fn with_hint(failure: impl Into<Failure>) -> Failure {
    let failure = failure.into();
    let text = failure.to_string();
    let hint = if text.contains("the file ends inside") {
        "the file is not complete: download or copy it again"
    } else if text.contains("quantization is only supported for") {
        "quantize from weights in F32, F16 or BF16; `llmsrv show MODEL` says which ones a model has"
    } else if text.contains("needs an importance matrix") {
        "make one from a text with `llmsrv imatrix`, and name it with --imatrix"
    } else {
        return failure;
    };
    failure.hint(hint)
}

async fn make(
    context: &Context,
    args: &CreateArgs,
    connection: &Connection,
    mut order: Order,
) -> Result<(), Failure> {
    let mut steps = transfer::shown(context, args.json);
    let mut uploader = Uploader::new(context, connection, !args.copy, &mut steps);
    for (member, files) in [("files", order.files), ("adapters", order.adapters)] {
        if files.is_empty() {
            continue;
        }
        let mut digests = Map::new();
        for (name, path) in files {
            let digest = uploader.bring(&path).await?;
            let taken = digests.contains_key(&name);
            let name = if taken {
                format!("{}/{name}", digests.len())
            } else {
                name
            };
            digests.insert(name, json!(digest.to_string()));
        }
        order.request.insert(member.to_owned(), digests.into());
    }
    if let Some(path) = &order.imatrix {
        let digest = uploader.bring(path).await?;
        order
            .request
            .insert("imatrix".into(), json!(digest.to_string()));
    }
    let request = order.request.into();
    transfer::run(&connection.client, "/api/create", &request, &mut steps).await
}

const MAX_MODELFILE_BYTES: u64 = 16 << 20;
