//! Which models this machine can run, and how fast.

use std::{collections::BTreeMap, sync::OnceLock};

use llmsrv_api::catalogue::{Catalogue, CatalogueModel};
use llmsrv_server::CatalogueSource;

use crate::catalogue::{self, Entry, MODELS, Size};

/// The whole list for a server; the machine is measured when it is asked for the first time.
pub fn source(n_threads: usize) -> CatalogueSource {
    let machine = OnceLock::new();
    CatalogueSource::new(move || {
        machine
            .get_or_init(|| Machine::measure(n_threads))
            .list(&[])
    })
}

/// Tokens in a second that a person reads.
const READING: f64 = 5.0;

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

    /// The models that all words are said of.
    pub fn list(&self, words: &[String]) -> Catalogue {
        let matching = MODELS.iter().filter(|model| model.matches(words));
        let mut models: Vec<CatalogueModel> = matching
            .flat_map(|model| model.sizes.iter().map(|size| self.model(model, size)))
            .collect();
        suggest(&mut models);
        Catalogue {
            date: catalogue::DATE,
            memory_bytes: self.memory,
            bytes_per_second: self.bytes_per_second,
            models,
        }
    }

    fn model(&self, model: &'static Entry, size: &'static Size) -> CatalogueModel {
        let why_not = llmsrv_models::not_yet().find(|(name, _)| *name == model.architecture);
        let embeds = model.can.contains(&"embedding");
        CatalogueModel {
            name: model.full(size),
            bytes: size.bytes(),
            memory_bytes: size.memory(),
            runs: why_not.is_none(),
            why_not: why_not.map(|(_, why)| why),
            fits: self.memory.is_none_or(|memory| size.memory() <= memory),
            suggested: false,
            tokens_per_second: (!embeds).then(|| size.tokens_per_second(self.bytes_per_second)),
            about: model.about,
            capabilities: model.can,
            context: model.context,
            architecture: model.architecture,
            licence: model.licence,
        }
    }
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
        let base = model.name.split(':').next().unwrap_or(&model.name);
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
