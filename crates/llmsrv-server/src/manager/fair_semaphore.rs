//! FairSemaphore to use a model: as many at a time as it batches, and clients in rotation.
//!
//! Of those who wait, each client has its next request served in turn, so one that sends a hundred
//! does not keep another from its first. The requests of one client keep their order.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use crate::rate::Client;

/// The turns of one model.
#[derive(Clone)]
pub(super) struct FairSemaphore(Arc<Mutex<State>>);

struct State {
    n_free: usize,
    /// Clients with requests that wait, the next one first.
    waiting: VecDeque<(Client, VecDeque<oneshot::Sender<Permit>>)>,
}

/// A turn; its drop hands it to the next who waits.
pub(super) struct Permit {
    /// `None` = it was handed on.
    turns: Option<FairSemaphore>,
}

impl FairSemaphore {
    pub(super) fn new(n_turns: usize) -> FairSemaphore {
        FairSemaphore(Arc::new(Mutex::new(State {
            n_free: n_turns,
            waiting: VecDeque::new(),
        })))
    }

    /// Takes a turn if one is free: then nobody waits.
    pub(super) fn take_now(&self) -> Option<Permit> {
        let mut state = self.state();
        state.n_free = state.n_free.checked_sub(1)?;
        Some(Permit {
            turns: Some(self.clone()),
        })
    }

    /// Waits for a turn.
    pub(super) async fn take(&self, client: Client) -> Option<Permit> {
        let receiver = {
            let mut state = self.state();
            if let Some(n_free) = state.n_free.checked_sub(1) {
                state.n_free = n_free;
                return Some(Permit {
                    turns: Some(self.clone()),
                });
            }
            let (sender, receiver) = oneshot::channel();
            let known = state.waiting.iter_mut().find(|(other, _)| *other == client);
            match known {
                Some((_, requests)) => requests.push_back(sender),
                None => state.waiting.push_back((client, VecDeque::from([sender]))),
            }
            receiver
        };
        receiver.await.ok()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

impl State {
    /// Takes out the request that is next.
    fn next(&mut self) -> Option<oneshot::Sender<Permit>> {
        while let Some((client, mut requests)) = self.waiting.pop_front() {
            // Who went away does not cost its client a turn.
            requests.retain(|request| !request.is_closed());
            let next = requests.pop_front();
            if !requests.is_empty() {
                self.waiting.push_back((client, requests));
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(turns) = self.turns.take() else {
            return;
        };
        loop {
            let mut state = turns.state();
            let Some(next) = state.next() else {
                state.n_free += 1;
                return;
            };
            drop(state);
            let turn = Permit {
                turns: Some(turns.clone()),
            };
            match next.send(turn) {
                Ok(()) => return,
                // Nobody waits for it any more.
                Err(mut turn) => turn.turns = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, future::BoxFuture};

    use super::*;

    fn client(name: &str) -> Client {
        Client::Key(name.into())
    }

    fn wait(turns: &FairSemaphore, name: &str) -> BoxFuture<'static, Option<Permit>> {
        let (turns, client) = (turns.clone(), client(name));
        let mut waiting = async move { turns.take(client).await }.boxed();
        assert!((&mut waiting).now_or_never().is_none(), "it stands in line");
        waiting
    }

    #[test]
    fn clients_take_turns_and_keep_their_own_order() {
        let turns = FairSemaphore::new(1);
        let mut turn = turns.take_now();
        assert!(turn.is_some() && turns.take_now().is_none());
        let names = ["busy", "busy", "busy", "busy", "other", "third", "other"];
        let mut waiting: Vec<_> = names.iter().map(|name| wait(&turns, name)).collect();
        // The second of the busy one goes away.
        waiting[1] = futures_util::future::pending().boxed();
        let mut order = Vec::new();
        for _ in 0..6 {
            drop(turn.take());
            let served = waiting
                .iter_mut()
                .position(|waiting| match waiting.now_or_never() {
                    Some(given) => {
                        turn = given;
                        true
                    }
                    None => false,
                });
            let served = served.unwrap();
            waiting[served] = futures_util::future::pending().boxed();
            order.push(served);
        }
        assert_eq!(order, [0, 4, 5, 2, 6, 3]);
        drop(turn);
        assert!(turns.take_now().is_some(), "nobody waits");
    }

    #[test]
    fn a_turn_that_was_given_to_nobody_is_not_lost() {
        let turns = FairSemaphore::new(1);
        let turn = turns.take_now();
        let (gone, stays) = (wait(&turns, "a"), wait(&turns, "b"));
        drop(turn);
        // It was on its way to the one who goes now.
        drop(gone);
        assert!(stays.now_or_never().flatten().is_some());
        assert!(turns.take_now().is_some());
    }
}
