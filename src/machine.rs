//! Which models this machine can run, and how fast.

use std::{collections::BTreeMap, sync::OnceLock};

use llmsrv_api::catalogue::{Catalogue, CatalogueModel};
use llmsrv_registry::Offer;
use llmsrv_server::CatalogueSource;

use crate::catalogue::{
    self, Entry, MODELS, Size,
    refreshed::{self, Refreshed},
};

/// The whole list for a server; the machine is measured when it is asked for the first time.
pub fn source(n_threads: usize) -> CatalogueSource {
    let machine = OnceLock::new();
    CatalogueSource::new(move || {
        let refreshed = Refreshed::read().unwrap_or_else(|error| {
            tracing::warn!("{error:#}");
            Refreshed::default()
        });
        machine
            .get_or_init(|| Machine::measure(n_threads))
            .list(&[], &refreshed)
    })
}

/// Tokens in a second that a person reads.
pub const READING: f64 = 5.0;

/// What decides whether a model fits, and how fast it is.
pub struct Machine {
    /// Bytes of memory that a process can have.
    memory: Option<u64>,
    /// What memory gives to all threads.
    bytes_per_second: f64,
}

impl Machine {
    /// Looks at this machine; takes a moment.
    pub fn measure(n_threads: usize) -> Machine {
        Machine {
            memory: llmsrv_server::total_memory(),
            bytes_per_second: llmsrv_bench::bandwidth(n_threads),
        }
    }

    /// The models that all words are said of: those of the program, then those that were found later.
    pub fn list(&self, words: &[String], refreshed: &Refreshed) -> Catalogue {
        let matching = MODELS.iter().filter(|model| model.matches(words));
        let mut models: Vec<CatalogueModel> = matching
            .flat_map(|model| model.sizes.iter().map(|size| self.model(model, size)))
            .collect();
        let offered = refreshed.offers.iter().map(|offer| self.offered(offer));
        models.extend(offered.filter(|model| {
            let mut said = vec![model.name.as_str(), model.about.as_str()];
            said.extend(model.capabilities.iter().map(String::as_str));
            said.extend(model.architecture.as_deref());
            said.extend(model.licence.as_deref());
            catalogue::says(words, &said)
        }));
        suggest(&mut models);
        Catalogue {
            date: catalogue::DATE,
            refreshed: (!refreshed.date.is_empty()).then(|| refreshed.date.clone()),
            memory_bytes: self.memory,
            bytes_per_second: self.bytes_per_second,
            models,
        }
    }

    fn model(&self, model: &'static Entry, size: &'static Size) -> CatalogueModel {
        let why_not = why_not(model.architecture);
        let embeds = model.can.contains(&"embedding");
        CatalogueModel {
            name: model.full(size),
            bytes: size.bytes(),
            memory_bytes: size.memory(),
            runs: why_not.is_none(),
            why_not,
            fits: self.memory.is_none_or(|memory| size.memory() <= memory),
            suggested: false,
            tokens_per_second: (!embeds).then(|| size.tokens_per_second(self.bytes_per_second)),
            about: model.about.to_owned(),
            capabilities: model.can.iter().map(|what| (*what).to_owned()).collect(),
            context: Some(model.context),
            architecture: Some(model.architecture.to_owned()),
            licence: Some(model.licence.to_owned()),
        }
    }

    fn offered(&self, offer: &Offer) -> CatalogueModel {
        // Which part of the weights a token reads is in the file alone.
        let size = Size {
            tag: "",
            megabytes: u32::try_from(offer.bytes / 1_000_000).unwrap_or(u32::MAX),
            active: 100,
        };
        let why_not = offer.architecture.as_deref().and_then(why_not);
        let embeds = offer.capabilities.iter().any(|what| what == "embedding");
        CatalogueModel {
            name: offer.name.clone(),
            bytes: offer.bytes,
            memory_bytes: size.memory(),
            runs: why_not.is_none(),
            why_not,
            fits: self.memory.is_none_or(|memory| size.memory() <= memory),
            suggested: false,
            tokens_per_second: (!embeds && offer.bytes > 0)
                .then(|| size.tokens_per_second(self.bytes_per_second)),
            about: if embeds { "search" } else { "chat" }.to_owned(),
            capabilities: offer.capabilities.clone(),
            context: offer.context,
            architecture: offer.architecture.clone(),
            licence: offer.licence.clone(),
        }
    }
}

/// Returns why models of an architecture do not run here.
fn why_not(architecture: &str) -> Option<&'static str> {
    if let Some((_, why)) = llmsrv_models::not_yet().find(|(name, _)| *name == architecture) {
        return Some(why);
    }
    let mut known = llmsrv_models::architectures().chain(llmsrv_models::encoders());
    (!known.any(|name| name == architecture)).then_some("its architecture is not known here")
}

/// Suggests, of each model, the largest size that keeps up with a reader, or the smallest.
fn suggest(models: &mut [CatalogueModel]) {
    let mut best: BTreeMap<&str, usize> = BTreeMap::new();
    for (idx, model) in models.iter().enumerate() {
        if !(model.runs && model.fits) {
            continue;
        }
        // An answer comes as fast as it is read. Vectors are read by nobody.
        let keeps_up = model.tokens_per_second.is_none_or(|rate| rate >= READING);
        let base = refreshed::model(&model.name);
        let held = best.entry(base).or_insert(idx);
        if keeps_up && models[*held].bytes < model.bytes {
            *held = idx;
        }
    }
    let best: Vec<usize> = best.into_values().collect();
    for idx in best {
        models[idx].suggested = true;
    }
}
