//! Draft models: which model drafts for which, and whether it can.

use llmsrv_engine::{LoadError, LoadOptions, Loader, Model, Offload, Speculation};
use llmsrv_store::{Store, StoredModel};
use llmsrv_tokenizer::Tokenizer;

use super::{NeedOfOne, load_options, need_of, refused};
use crate::{
    error::ApiError,
    settings::{DraftModel, Gpus, Settings},
};

/// The small model chosen for one that is to be loaded.
pub(super) struct Chosen {
    stored: StoredModel,
    by: By,
}

/// Who chose it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// A setting that names it for this model alone.
    OwnSetting,
    /// A setting that names one for all.
    Setting,
    /// Whoever made the model, which brings it.
    Layer,
}

/// Returns the small model that was named for `big` alone.
pub(super) fn own<'a>(settings: &'a Settings, big: &StoredModel) -> Option<&'a DraftModel> {
    let names = [Some(&big.entry.name), big.entry.stands_for.as_ref()];
    let is_own = |draft: &&DraftModel| draft.of.is_some() && names.contains(&draft.of.as_ref());
    settings.draft_models.iter().find(is_own)
}

/// Chooses the small model for `big`: the one that was set, else the one that it brings.
pub(super) fn choose(
    settings: &Settings,
    store: &Store,
    big: &StoredModel,
) -> Result<Option<Chosen>, ApiError> {
    let for_all = || {
        settings
            .draft_models
            .iter()
            .find(|draft| draft.of.is_none())
    };
    let Some(draft) = own(settings, big).or_else(for_all) else {
        return Ok(brought(settings, store, big));
    };
    let by = if draft.of.is_some() {
        By::OwnSetting
    } else {
        By::Setting
    };
    let stored = store.model(&draft.name).map_err(|error| match error {
        llmsrv_store::Error::NotFound { .. } => ApiError::internal(format!(
            "draft model '{name}' not found: pull it, or take it out of LLMSRV_DRAFT_MODEL",
            name = draft.name
        )),
        error => error.into(),
    })?;
    // A model is as fast as itself.
    let is_itself = stored.weights == big.weights;
    Ok((by == By::OwnSetting || !is_itself).then_some(Chosen { stored, by }))
}

/// Returns the small model that `big` brings.
fn brought(settings: &Settings, store: &Store, big: &StoredModel) -> Option<Chosen> {
    let weights = big.draft.clone()?;
    let stored = StoredModel {
        facts: store.facts(&weights),
        weights,
        shards: Vec::new(),
        projectors: Vec::new(),
        adapters: Vec::new(),
        ..big.clone()
    };
    (settings.speculation != Speculation::Off).then_some(Chosen {
        stored,
        by: By::Layer,
    })
}

impl Chosen {
    /// Tells whether it may be one that can be loaded. What a model brings is often a part of it that only
    /// drafts together with it, under an architecture of its own; what was named is loaded, or says why not.
    fn is_known(&self) -> bool {
        self.by != By::Layer || !self.stored.facts.kv_heads.is_empty()
    }

    /// Returns what the small model will take.
    pub(super) fn need(
        &self,
        (settings, gpus): (&Settings, Option<&Gpus>),
        store: &Store,
    ) -> Result<NeedOfOne, LoadError> {
        if !self.is_known() {
            return Ok(NeedOfOne::default());
        }
        let on_gpus = need_of((settings, gpus), store, &self.stored, Offload::default());
        // One that GPUs do not compute drafts on the CPU.
        on_gpus.or_else(|error| {
            tracing::info!(draft = %self.stored.entry.name, %error, "draft model on the CPU");
            let nothing = Offload {
                n_layers: Some(0),
                ..Offload::default()
            };
            need_of((settings, None), store, &self.stored, nothing)
        })
    }

    /// Loads the small model; `None` if it cannot draft for a model with this tokenizer and was not
    /// named for it, or cannot be loaded and was not named at all.
    pub(super) fn load(
        &self,
        (settings, offload): (&Settings, Offload),
        loader: &Loader,
        big: &str,
        tokenizer: &Tokenizer,
    ) -> Result<Option<Box<dyn Model>>, ApiError> {
        let name = match self.by {
            By::Layer => "its own".to_owned(),
            By::OwnSetting | By::Setting => self.stored.entry.name.to_string(),
        };
        let without = |reason: &str| {
            tracing::warn!(
                model = big,
                reason,
                "loaded without the draft model it brings"
            );
            Ok(None)
        };
        if !self.is_known() {
            let architecture = &self.stored.facts.architecture;
            return without(&format!("the architecture '{architecture}' is not known"));
        }
        let options = LoadOptions {
            projector: None,
            ..load_options(settings, &self.stored, offload)
        };
        let loaded = match loader(&self.stored.weights, &options) {
            Ok(loaded) => loaded,
            Err(error) if self.by == By::Layer => return without(&error.to_string()),
            Err(error) => return Err(refused(&name, error)),
        };
        let reason = if loaded.model.spec().generates() {
            difference(&loaded.tokenizer, tokenizer)
        } else {
            Some("it does not generate text".into())
        };
        match reason {
            None => Ok(Some(loaded.model)),
            Some(reason) if self.by == By::Layer => without(&reason),
            Some(reason) if self.by == By::OwnSetting => Err(ApiError::internal(format!(
                "draft model '{name}' cannot draft for '{big}': {reason}; \
                 change LLMSRV_DRAFT_MODEL"
            ))),
            Some(reason) => {
                tracing::info!(
                    model = big,
                    draft = name,
                    reason,
                    "loaded without draft model"
                );
                Ok(None)
            }
        }
    }
}

/// Returns in what two vocabularies differ, as far as that matters: a few more tokens at the end
/// do not.
fn difference(small: &Tokenizer, big: &Tokenizer) -> Option<String> {
    let (n_small, n_big) = (small.vocab_size(), big.vocab_size());
    if n_small.abs_diff(n_big) > MOST_MORE {
        return Some(format!("it has {n_small} tokens, not {n_big}"));
    }
    let n_common = n_small.min(n_big) as u32;
    let other = (0..n_common).find(|id| small.token_text(*id) != big.token_text(*id))?;
    Some(format!("token {other} is another one"))
}

/// Models of a family pad their vocabularies to different lengths.
const MOST_MORE: usize = 256;
