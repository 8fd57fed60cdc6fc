//! Models in and out of registries: the Docker registry protocol, as Ollama's registry and any OCI
//! registry speak it, and the file interface of the Hugging Face hub.
//!
//! [`Registry::pull`] and [`Registry::push`] are the doors. What matters about them:
//!
//! * The store is whole at any time. Blobs are named by digest and appear when it is right; the
//!   manifest is written last, in one step.
//! * What has come stays. A pull that ended for whatever reason goes on where it was, part by part.
//! * Credentials go to the host they are for and nowhere else, see `session`.
//! * Two pulls of one blob share one download; it stops when nobody waits for it any more.

#![forbid(unsafe_code)]

mod auth;
mod backoff;
mod download;
mod error;
mod hosts;
mod http;
mod hub;
mod listing;
mod preview;
mod pull;
mod push;
mod session;
mod settings;
mod shared;
mod source;
mod transfer;
mod upload;

use std::sync::Arc;

use llmsrv_api::progress::Progress;
use llmsrv_store::{Manifest, ModelName, Store};

pub use error::Error;
pub use listing::Offer;
pub use preview::Preview;
pub use settings::{Mirror, Settings, Tuning};

use crate::{auth::Keys, http::Http, shared::Downloads};

/// Registries as seen from one store. Cheap to clone.
#[derive(Clone)]
pub struct Registry(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) settings: Settings,
    pub(crate) store: Arc<Store>,
    pub(crate) http: Http,
    pub(crate) keys: Keys,
    pub(crate) downloads: Downloads,
    pub(crate) check: Check,
}

/// Looks at a model whose blobs are all there, before its manifest is written; refuses it with a text.
pub type Check = fn(&Store, &Manifest) -> Result<(), String>;

impl Registry {
    /// Prepares pulls into and pushes from `store`. Nothing is opened before the first of them.
    pub fn new(settings: Settings, store: Arc<Store>) -> Registry {
        Registry::with_check(settings, store, |_, _| Ok(()))
    }

    /// As [`Registry::new`]; only models that pass `check` come in.
    pub fn with_check(settings: Settings, store: Arc<Store>, check: Check) -> Registry {
        Registry(Arc::new(Inner {
            http: Http::new(settings.tuning.connect),
            keys: Keys::new(settings.key_files.clone()),
            downloads: Downloads::default(),
            settings,
            store,
            check,
        }))
    }

    /// Refuses hosts that the settings do not allow.
    pub fn check(&self, name: &ModelName) -> Result<(), Error> {
        self.0.settings.check(name.host())
    }

    /// Brings a model into the store. `report` is called at each step and some times a second
    /// while bytes come. Dropping the future stops the transfer, unless somebody else waits for
    /// the same blob; what has come is kept.
    ///
    /// `insecure` allows a host in a private network to speak plain HTTP or to have a certificate
    /// that cannot be verified.
    pub async fn pull(
        &self,
        name: &ModelName,
        insecure: bool,
        report: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<(), Error> {
        pull::pull(&self.0, name, insecure, report).await
    }

    /// Finds out what [`Registry::pull`] would do, without receiving more than the manifest.
    pub async fn preview(&self, name: &ModelName, insecure: bool) -> Result<Preview, Error> {
        preview::preview(&self.0, name, insecure).await
    }

    /// Asks the hub (`hf.co`) or a registry which models it offers whose names have all `words`: of the hub the
    /// 40 repositories of GGUF files that people pull most, of a registry at most 500 repositories. `report` gets
    /// the number of repositories that were read, and of all.
    ///
    /// # Errors
    /// [`Error::NoList`] where a registry does not list what it has.
    pub async fn offers(
        &self,
        host: &str,
        words: &[String],
        insecure: bool,
        report: &(dyn Fn(usize, usize) + Send + Sync),
    ) -> Result<Vec<Offer>, Error> {
        listing::offers(&self.0, host, words, insecure, report).await
    }

    /// Sends a model of the store to its registry. `report` and `insecure` as in
    /// [`Registry::pull`].
    pub async fn push(
        &self,
        name: &ModelName,
        insecure: bool,
        report: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<(), Error> {
        push::push(&self.0, name, insecure, report).await
    }
}

/// Calls the store on a thread that may wait.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, llmsrv_store::Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(error) => Err(Error::Internal(error.to_string())),
    }
}

/// Signs the address of a token on a thread that may wait for files.
pub(crate) async fn blocking_key(
    inner: &Arc<Inner>,
    url: reqwest::Url,
) -> Result<(reqwest::Url, String), Error> {
    let inner = inner.clone();
    match tokio::task::spawn_blocking(move || inner.keys.sign(url)).await {
        Ok(signed) => signed,
        Err(error) => Err(Error::Internal(error.to_string())),
    }
}
