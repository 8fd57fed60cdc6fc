//! Models that other engines serve: servers with an OpenAI-compatible endpoint, such as vLLM, SGLang,
//! TGI or llama-server, behind our own front door.
//!
//! A request goes to the peer with the least work for its weight. A peer that fails before it has
//! said anything is passed over for the next one; after that its failure is the answer's.

mod answer;
mod embed;
mod request;

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

pub(crate) use answer::Answer;
use llmsrv_config::UpstreamConfig;
use llmsrv_store::{InvalidName, ModelName};
use tokio::{sync::watch, task::JoinSet};

use crate::{
    error::ApiError,
    job::{EmbedJob, Embedded, Job},
};

/// A server that answers for some models.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    /// Its address, its limits and its times.
    pub settings: UpstreamConfig,
    /// Our names of its models, each with its own name of it.
    models: Vec<(ModelName, String)>,
}

impl Upstream {
    /// Reads the names of its models.
    ///
    /// # Errors
    /// If one of ours is none.
    pub fn new(settings: UpstreamConfig) -> Result<Upstream, InvalidName> {
        let models = settings.models.iter();
        let models = models.map(|(ours, theirs)| Ok((ours.parse()?, theirs.clone())));
        Ok(Upstream {
            models: models.collect::<Result<_, InvalidName>>()?,
            settings,
        })
    }
}

/// All servers there are, and how they fare.
#[derive(Default)]
pub(crate) struct Upstreams {
    peers: Vec<Arc<Peer>>,
    /// Breaks ties in turn.
    turn: AtomicUsize,
}

/// A server and how it fares.
pub(crate) struct Peer {
    upstream: Upstream,
    http: reqwest::Client,
    healthy: AtomicBool,
    active: AtomicUsize,
}

/// Why no server answered.
pub(crate) struct Refused {
    pub(crate) error: ApiError,
    /// A model of this machine may answer instead.
    pub(crate) local: bool,
}

/// One request that a server works on; counts until it is dropped.
pub(crate) struct Turn(Arc<Peer>);

impl Upstreams {
    /// Prepares a client for each server. What is known of those that were there `before` stays.
    pub(crate) fn new(all: &[Upstream], before: &Upstreams) -> Upstreams {
        llmsrv_tls::init();
        let peers = all.iter().filter_map(|upstream| {
            let settings = &upstream.settings;
            let mut old = before.peers.iter();
            if let Some(peer) = old.find(|peer| peer.upstream == *upstream) {
                return Some(peer.clone());
            }
            let http = reqwest::Client::builder()
                .connect_timeout(settings.connect_timeout)
                .no_proxy()
                // A key must not follow to another host.
                .redirect(reqwest::redirect::Policy::none())
                .build();
            match http {
                Ok(http) => Some(Arc::new(Peer {
                    upstream: upstream.clone(),
                    http,
                    healthy: AtomicBool::new(true),
                    active: AtomicUsize::new(0),
                })),
                Err(error) => {
                    tracing::error!(upstream = settings.name, %error, "it cannot be used");
                    None
                }
            }
        });
        Upstreams {
            peers: peers.collect(),
            turn: AtomicUsize::new(0),
        }
    }

    /// Returns the names of all models that others serve, each once.
    pub(crate) fn models(&self) -> Vec<ModelName> {
        let mut names: Vec<ModelName> = Vec::new();
        for (name, _) in self.peers.iter().flat_map(|peer| &peer.upstream.models) {
            if !names.iter().any(|known| same(known, name)) {
                names.push(name.clone());
            }
        }
        names
    }

    /// Returns the name of a model that others serve as the settings have it.
    pub(crate) fn known(&self, sent: &str) -> Option<&ModelName> {
        let sent = sent.parse().ok()?;
        let models = self.peers.iter().flat_map(|peer| &peer.upstream.models);
        models.map(|(name, _)| name).find(|name| same(name, &sent))
    }

    /// Lets a server answer.
    pub(crate) async fn answer(&self, job: &Job) -> Result<Answer, Refused> {
        let mut attempts = self.attempts(&job.model);
        while let Some((turn, remote)) = attempts.next() {
            let begun = Answer::begin(turn, job, &remote).await;
            if let ControlFlow::Break(result) = attempts.judge(begun) {
                return result;
            }
        }
        Err(attempts.refused)
    }

    /// Lets a server turn texts into vectors.
    pub(crate) async fn embed(&self, job: &EmbedJob) -> Result<Embedded, Refused> {
        let mut attempts = self.attempts(&job.model);
        while let Some((turn, remote)) = attempts.next() {
            let done = embed::embed(turn, job, &remote).await;
            if let ControlFlow::Break(result) = attempts.judge(done) {
                return result;
            }
        }
        Err(attempts.refused)
    }

    fn attempts(&self, model: &str) -> Attempts {
        let candidates = match model.parse() {
            Ok(name) => self.candidates(&name),
            Err(_) => Vec::new(),
        };
        let local = candidates
            .iter()
            .any(|(peer, _)| peer.settings().local_fallback);
        Attempts {
            refused: Refused {
                error: ApiError::model_not_found(model),
                local,
            },
            candidates: candidates.into_iter(),
            asked: None,
        }
    }

    /// Checks the health of all servers for ever, also of those that come while it runs.
    pub(crate) async fn watch(mut present: watch::Receiver<Arc<Upstreams>>) {
        loop {
            let upstreams = present.borrow_and_update().clone();
            tokio::select! {
                () = upstreams.check() => {}
                changed = present.changed() => if changed.is_err() {
                    return;
                },
            }
        }
    }

    async fn check(&self) {
        let mut checks = JoinSet::new();
        for peer in &self.peers {
            let peer = peer.clone();
            checks.spawn(async move {
                loop {
                    peer.check().await;
                    tokio::time::sleep(peer.settings().health_interval).await;
                }
            });
        }
        while checks.join_next().await.is_some() {}
        // There is none.
        std::future::pending::<()>().await;
    }

    fn of(&self, name: &ModelName) -> Vec<(Arc<Peer>, String)> {
        let serving = self.peers.iter().filter_map(|peer| {
            let mut models = peer.upstream.models.iter();
            let (_, remote) = models.find(|(known, _)| same(known, name))?;
            Some((peer.clone(), remote.clone()))
        });
        serving.collect()
    }

    /// Orders the servers of a model: sound ones first, then those with the least work for their
    /// weight, then in turn. Sick ones stay in the list: a check may be out of date.
    fn candidates(&self, name: &ModelName) -> Vec<(Arc<Peer>, String)> {
        let mut serving = self.of(name);
        if serving.len() > 1 {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            let n = serving.len();
            serving.rotate_left(turn % n);
            serving.sort_by(|(a, _), (b, _)| {
                let load = |peer: &Peer| {
                    (peer.active.load(Ordering::Relaxed) + 1) as f64
                        / f64::from(peer.settings().weight.max(1))
                };
                let sick = |peer: &Peer| !peer.healthy.load(Ordering::Relaxed);
                sick(a).cmp(&sick(b)).then(load(a).total_cmp(&load(b)))
            });
        }
        serving
    }
}

/// The servers of a model, asked one after the other until one does not fail.
struct Attempts {
    candidates: std::vec::IntoIter<(Arc<Peer>, String)>,
    asked: Option<Arc<Peer>>,
    /// What the client hears if there is no more.
    refused: Refused,
}

impl Attempts {
    /// Returns a place at the next server that has one, and the server's name of the model.
    fn next(&mut self) -> Option<(Turn, String)> {
        for (peer, remote) in self.candidates.by_ref() {
            if let Some(turn) = peer.turn() {
                self.asked = Some(peer);
                return Some((turn, remote));
            }
            self.refused.error = ApiError::queue_full();
        }
        None
    }

    /// Looks whether the next one should be asked.
    fn judge<T>(&mut self, result: Result<T, answer::Failed>) -> ControlFlow<Result<T, Refused>> {
        let Some(peer) = &self.asked else {
            return ControlFlow::Continue(());
        };
        match result {
            Ok(answer) => {
                peer.set_healthy(true);
                ControlFlow::Break(Ok(answer))
            }
            Err(answer::Failed::Request(error)) => ControlFlow::Break(Err(Refused {
                error,
                local: false,
            })),
            Err(answer::Failed::Peer { error, is_sick }) => {
                tracing::warn!(upstream = peer.settings().name, %error, "passed over");
                if is_sick {
                    peer.set_healthy(false);
                }
                self.refused.error = error;
                ControlFlow::Continue(())
            }
        }
    }
}

impl Peer {
    fn settings(&self) -> &UpstreamConfig {
        &self.upstream.settings
    }

    /// Takes one of the places, if there is one.
    fn turn(self: &Arc<Peer>) -> Option<Turn> {
        let limit = match self.settings().parallel {
            0 => usize::MAX,
            limit => limit,
        };
        let take = |active: usize| (active < limit).then_some(active + 1);
        self.active
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .ok()?;
        Some(Turn(self.clone()))
    }

    async fn check(&self) {
        // Its requests tell of a server that has some; there are servers that a check disturbs.
        if self.active.load(Ordering::Relaxed) > 0 {
            return;
        }
        let url = format!("{}{}", self.settings().url, self.settings().health_path);
        let mut request = self.http.get(url).timeout(HEALTH_TIMEOUT);
        if let Some(key) = &self.settings().api_key {
            request = request.bearer_auth(key.expose());
        }
        let sound = request
            .send()
            .await
            .is_ok_and(|response| response.status().is_success());
        self.set_healthy(sound);
    }

    fn set_healthy(&self, healthy: bool) {
        let before = self.healthy.swap(healthy, Ordering::Relaxed);
        let upstream = &self.settings().name;
        match (before, healthy) {
            (true, false) => tracing::warn!(upstream, "does not answer"),
            (false, true) => tracing::info!(upstream, "answers again"),
            _ => {}
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

fn same(a: &ModelName, b: &ModelName) -> bool {
    a.full().eq_ignore_ascii_case(&b.full())
}

const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);
