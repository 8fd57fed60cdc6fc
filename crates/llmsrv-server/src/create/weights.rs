//! Weights of a model that is being made: what is to be done with the files, and doing it.

use std::path::{Path, PathBuf};

use llmsrv_chat::Template;
use llmsrv_convert::{Imatrix, Target};
use llmsrv_store::{BlobFile, Layer, LayerKind, ModelConfig, Store, StoredModel};
use serde_json::{Map, json};

use super::{
    files::{self, Found, Gguf, Purpose},
    manifest::ManifestBuilder,
    request::Order,
};
use crate::{
    error::{ApiError, refuse},
    progress::Progress,
};

/// What is to be done, all of it possible as far as headers tell.
pub(super) struct Weights {
    model: Model,
    projectors: Vec<Gguf>,
    adapter: Option<Adapter>,
    quantize: Option<(Target, Option<Imatrix>)>,
}

/// Where the weights come from.
enum Model {
    /// Files of one model, in the order of its parts.
    Gguf(Vec<Gguf>),
    /// Published files: names and blobs.
    SafeTensors(Vec<(String, PathBuf)>),
}

enum Adapter {
    Gguf(Gguf),
    SafeTensors(Vec<(String, PathBuf)>),
}

impl Weights {
    /// Finds out what the files of an order are, and refuses what cannot become a model.
    pub(super) fn gather(
        store: &Store,
        order: &Order,
        base: Option<&StoredModel>,
    ) -> Result<Weights, ApiError> {
        let files = files::find(store, &order.files)?;
        let mut adapter = None;
        let mut projectors = Vec::new();
        let mut parts = Vec::new();
        let safetensors = files::has_safetensors(&files);
        if !safetensors {
            for gguf in files::open_all(&files)? {
                match gguf.purpose() {
                    Purpose::Model => parts.push(gguf),
                    Purpose::Projector => projectors.push(gguf),
                    Purpose::Adapter if adapter.is_none() => adapter = Some(Adapter::Gguf(gguf)),
                    Purpose::Adapter => return Err(several_adapters()),
                }
            }
        }
        let model = match base {
            Some(_) if safetensors || !parts.is_empty() => {
                let text = "weights cannot come from both 'from' and 'files'; beside 'from' the files can only be \
                    projectors and an adapter";
                return Err(ApiError::bad_request(text));
            }
            Some(base) => Model::Gguf(files::in_order(files::base_parts(base)?)?),
            None if safetensors => Model::SafeTensors(files::paths(&files)),
            None => Model::Gguf(files::in_order(parts)?),
        };
        let given = files::find(store, &order.adapters)?;
        if !given.is_empty() {
            if adapter.is_some() || (!files::has_safetensors(&given) && given.len() > 1) {
                return Err(several_adapters());
            }
            adapter = Some(find_adapter(&given)?);
        }
        if adapter.is_some() && base.is_some_and(|base| !base.adapters.is_empty()) {
            return Err(several_adapters());
        }
        if let (Some(Adapter::Gguf(adapter)), Model::Gguf(parts)) = (&adapter, &model) {
            adapter.check_fits(&parts[0])?;
        }
        let imatrix = match &order.imatrix {
            Some(_) if order.quantize.is_none() => {
                let text = "'imatrix' says how to quantize, and 'quantize' is missing";
                return Err(ApiError::bad_request(text));
            }
            Some(digest) => {
                let blob = [("imatrix".to_owned(), *digest)];
                let found = files::find(store, &blob)?.pop();
                let found = found.ok_or_else(|| ApiError::blob_not_found(digest))?;
                Some(Imatrix::read(&found.path)?)
            }
            None => None,
        };
        if let (Some(target), Model::Gguf(parts)) = (order.quantize, &model)
            && parts[0].file.header().file_type_name() != target.name()
            && let Some(ty) = parts.iter().find_map(Gguf::quantized_type)
        {
            return Err(llmsrv_convert::Error::AlreadyQuantized(ty).into());
        }
        if let (Some(target), Model::Gguf(parts)) = (order.quantize, &model)
            && let [whole] = &parts[..]
        {
            llmsrv_convert::plan(whole.file.header(), target, imatrix.as_ref())?;
        }
        Ok(Weights {
            model,
            projectors,
            adapter,
            quantize: order.quantize.map(|target| (target, imatrix)),
        })
    }

    /// Makes one file of weights and puts it, projectors and adapter into the builder.
    pub(super) fn make(
        self,
        store: &Store,
        builder: &mut ManifestBuilder,
        progress: &mut Progress,
    ) -> Result<(), ApiError> {
        let mut made: Option<BlobFile> = None;
        let mut old: Option<&Gguf> = None;
        match &self.model {
            Model::SafeTensors(files) => {
                progress.status("converting model");
                let target = self.quantize.as_ref().map(|(target, _)| *target);
                made = Some(convert(store, |path| {
                    let on = &mut |done, total| {
                        progress.amount("converting model", NO_DIGEST, done, total)
                    };
                    llmsrv_convert::convert_model(files, path, target, on)
                })?);
            }
            Model::Gguf(parts) => {
                if parts.iter().any(|part| !part.is_old) {
                    progress.status("parsing GGUF");
                }
                old = parts.first();
                if parts.len() > 1 {
                    let paths: Vec<PathBuf> = parts.iter().map(|part| part.path.clone()).collect();
                    let status = format!("joining {} files", paths.len());
                    made = Some(convert(store, |path| {
                        let on =
                            &mut |done, total| progress.amount(&status, NO_DIGEST, done, total);
                        llmsrv_convert::join(&paths, path, on)
                    })?);
                }
            }
        }
        let source = match (&made, old) {
            (Some(file), _) => file.path().to_owned(),
            (None, Some(gguf)) => gguf.path.clone(),
            (None, None) => refuse!("no files provided to convert"),
        };
        let adapter = self
            .adapter
            .map(|adapter| adapter.make(store, &source, progress))
            .transpose()?;
        if let Some((target, imatrix)) = &self.quantize {
            let target = *target;
            let present = files::open(&source)?.header().file_type_name();
            if present != target.name() {
                let status = format!("quantizing {present} model to {target}");
                progress.status(&status);
                made = Some(convert(store, |path| {
                    let on = &mut |done, total| progress.amount(&status, NO_DIGEST, done, total);
                    llmsrv_convert::quantize(&source, path, target, imatrix.as_ref(), on)
                })?);
            }
        }
        let (layer, path) = match (made, old) {
            (Some(file), _) => {
                progress.status("verifying conversion");
                let layer = commit(LayerKind::Model, file)?;
                let path = store.blob_path(&layer.digest);
                (Some((layer, true)), path)
            }
            (None, Some(gguf)) if gguf.is_old => (None, gguf.path.clone()),
            (None, Some(gguf)) => (
                Some((gguf.layer(LayerKind::Model), false)),
                gguf.path.clone(),
            ),
            (None, None) => (None, source),
        };
        if let Some((layer, is_new)) = layer {
            let mut config = ModelConfig::of_weights(files::open(&path)?.header());
            let old = std::mem::take(&mut builder.config);
            // What the base says of itself beside its weights stays.
            config.capabilities = old.capabilities;
            config.renderer = old.renderer;
            config.parser = old.parser;
            config.requires = old.requires;
            config.own_template = old.own_template;
            if !old.families.is_empty() {
                config.families = old.families;
            }
            builder.config = config;
            builder.replace_weights(layer, is_new);
        }
        for projector in &self.projectors {
            let family = projector.file.metadata().architecture().unwrap_or("clip");
            if !builder.config.families.iter().any(|known| known == family) {
                builder.config.families.push(family.to_owned());
            }
            builder.add_blob(projector.layer(LayerKind::Projector), false);
        }
        if let Some((layer, is_new)) = adapter {
            builder.add_blob(layer, is_new);
        }
        Ok(())
    }
}

impl Adapter {
    fn make(
        self,
        store: &Store,
        base: &Path,
        progress: &mut Progress,
    ) -> Result<(Layer, bool), ApiError> {
        match self {
            Adapter::Gguf(gguf) => Ok((gguf.layer(LayerKind::Adapter), false)),
            Adapter::SafeTensors(files) => {
                progress.status("converting adapter");
                let file = convert(store, |path| {
                    let on = &mut |done, total| {
                        progress.amount("converting adapter", NO_DIGEST, done, total)
                    };
                    llmsrv_convert::convert_adapter(&files, Some(base), path, on)
                })?;
                Ok((commit(LayerKind::Adapter, file)?, true))
            }
        }
    }
}

/// Attaches a template where the weights bring none but their vocabulary shows which one they know.
pub(super) fn add_template(builder: &mut ManifestBuilder, store: &Store, progress: &mut Progress) {
    let weights = builder
        .weights()
        .map(|layer| store.blob_path(&layer.digest));
    let Some(facts) = weights.map(|path| store.facts(&path)) else {
        return;
    };
    let template = facts.template.as_deref().unwrap_or_default();
    if builder.config.embeds_only || !template.trim().is_empty() || !facts.knows_chatml {
        return;
    }
    let Ok(template) = Template::builtin(&|_| true) else {
        return;
    };
    progress.status("using autodetected template chatml");
    builder.replace(LayerKind::Template, template.source().into());
    let stop = Map::from_iter([("stop".to_owned(), json!(CHATML_TOKENS))]);
    builder.merge_parameters(&stop);
}

fn find_adapter(files: &[Found]) -> Result<Adapter, ApiError> {
    if files::has_safetensors(files) {
        return Ok(Adapter::SafeTensors(files::paths(files)));
    }
    match files::open_all(files)?.pop() {
        Some(gguf) if gguf.purpose() == Purpose::Adapter => Ok(Adapter::Gguf(gguf)),
        _ => Err(ApiError::bad_request("the adapter is no LoRA adapter")),
    }
}

fn convert(
    store: &Store,
    work: impl FnOnce(&Path) -> Result<(), llmsrv_convert::Error>,
) -> Result<BlobFile, ApiError> {
    let file = store.blob_file()?;
    work(file.path())?;
    Ok(file)
}

fn commit(kind: LayerKind, file: BlobFile) -> Result<Layer, ApiError> {
    let (digest, size) = file.commit()?;
    Ok(Layer::new(kind, digest, size))
}

fn several_adapters() -> ApiError {
    ApiError::bad_request("only one adapter is currently supported")
}

/// Stands where a layer has no digest yet, as clients know it.
const NO_DIGEST: &str = "0000000000000000000";
const CHATML_TOKENS: [&str; 2] = ["<|im_start|>", "<|im_end|>"];
