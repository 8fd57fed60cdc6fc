//! Two threads that ask the model, and a bounded queue of questions.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
};

use crate::lock::{Condvar, Mutex};

use super::client::{Client, LlmError, Question};

/// Questions that wait.
const MAX_QUESTIONS: usize = 256;
const WORKERS: usize = 2;

/// What a question was answered; `Err` holds the text that stands for the analysis.
pub(super) type Reply = (u128, Result<String, String>);

#[derive(Debug)]
pub(super) struct Pool {
    shared: Arc<Shared>,
    client: Arc<Client>,
    started: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Debug, Default)]
struct State {
    questions: VecDeque<(u128, Question)>,
    replies: Vec<Reply>,
    closed: bool,
}

impl Pool {
    pub(super) fn new(client: Client) -> Pool {
        Pool {
            shared: Arc::default(),
            client: Arc::new(client),
            started: false,
        }
    }

    /// Asks; the threads start with the first question.
    pub(super) fn ask(&mut self, key: u128, question: Question) -> Result<(), LlmError> {
        if !std::mem::replace(&mut self.started, true) {
            for _ in 0..WORKERS {
                let (shared, client) = (Arc::clone(&self.shared), Arc::clone(&self.client));
                thread::Builder::new()
                    .name("logkit-llm".into())
                    .spawn(move || shared.run(&client))
                    .map_err(|error| LlmError::Connection(format!("no thread: {error}")))?;
            }
        }
        let mut state = self.shared.state.lock();
        if state.questions.len() >= MAX_QUESTIONS {
            return Err(LlmError::QueueFull(MAX_QUESTIONS));
        }
        state.questions.push_back((key, question));
        drop(state);
        self.shared.work.notify_one();
        Ok(())
    }

    /// What was answered since the last call.
    pub(super) fn replies(&self) -> Vec<Reply> {
        std::mem::take(&mut self.shared.state.lock().replies)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        state.questions.clear();
        self.shared.work.notify_all();
    }
}

impl Shared {
    fn run(&self, client: &Client) {
        loop {
            let (key, question) = {
                let mut state = self.state.lock();
                loop {
                    if state.closed {
                        return;
                    }
                    match state.questions.pop_front() {
                        Some(question) => break question,
                        None => self.work.wait(&mut state),
                    }
                }
            };
            let reply = catch_unwind(AssertUnwindSafe(|| client.ask(&question)))
                .unwrap_or_else(|_| Err(LlmError::Answer("the client panicked".into())))
                .map_err(|error| error.to_string());
            self.state.lock().replies.push((key, reply));
        }
    }
}
