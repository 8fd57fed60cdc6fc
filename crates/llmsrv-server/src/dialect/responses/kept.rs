//! What clients refer to by its id instead of sending it again: whole responses (`previous_response_id`), and items
//! of their output (`item_reference`).

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::{Map, Value};

use crate::error::{ApiError, refuse};

/// The latest responses, in memory alone. Whoever knows an id may refer to it; ids cannot be guessed.
#[derive(Default)]
pub(crate) struct KeptResponses(Mutex<Kept>);

/// Lists of items, each as the JSON it came as: a value takes many times as much.
#[derive(Default)]
struct Kept {
    by_id: HashMap<String, Arc<str>>,
    /// Ids, the oldest first.
    order: VecDeque<String>,
    n_bytes: usize,
}

impl KeptResponses {
    /// Keeps the list of items that an id stands for, and forgets the oldest where there is no room.
    pub(super) fn keep(&self, id: &str, json: String) {
        if json.len() > MAX_REFERRED_BYTES {
            tracing::debug!(id, bytes = json.len(), "a response is too large to be kept");
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.n_bytes += json.len();
        kept.order.push_back(id.to_owned());
        kept.by_id.insert(id.to_owned(), json.into());
        while kept.n_bytes > MAX_BYTES
            && let Some(oldest) = kept.order.pop_front()
        {
            let forgotten = kept.by_id.remove(&oldest);
            kept.n_bytes -= forgotten.map_or(0, |json| json.len());
        }
    }

    fn find(&self, id: &str) -> Option<Arc<str>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.by_id.get(id).cloned()
    }
}

/// Puts items in the place of what a request refers to.
pub(super) struct Resolver<'a> {
    kept: &'a KeptResponses,
    /// What was put in, so that a short request cannot stand for endless text.
    seen: HashSet<String>,
    n_bytes: usize,
}

impl Resolver<'_> {
    pub(super) fn new(kept: &KeptResponses) -> Resolver<'_> {
        Resolver {
            kept,
            seen: HashSet::new(),
            n_bytes: 0,
        }
    }

    /// Returns the items of a response or an item.
    ///
    /// # Errors
    ///
    /// If there is no such id any more, or if a request refers to something twice or to too much.
    pub(super) fn items(&mut self, id: &str) -> Result<Vec<Map<String, Value>>, ApiError> {
        let Some(json) = self.kept.find(id) else {
            refuse!(
                "{id} is not kept here (any more): send the items themselves, which clients do with \"store\": false"
            );
        };
        self.n_bytes += json.len();
        if !self.seen.insert(id.to_owned()) || self.n_bytes > MAX_REFERRED_BYTES {
            refuse!(
                "input refers to {id} twice, or to more than {MAX_REFERRED_BYTES} bytes in all"
            );
        }
        serde_json::from_str(&json).map_err(|error| ApiError::bad_request(error.to_string()))
    }
}

/// Bytes of JSON that are kept.
const MAX_BYTES: usize = 64 << 20;
/// Bytes of JSON that one request refers to.
const MAX_REFERRED_BYTES: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_oldest_are_forgotten_and_nothing_is_referred_to_twice() {
        let kept = KeptResponses::default();
        let text = "x".repeat(MAX_REFERRED_BYTES / 2);
        for n in 0..12 {
            let items = json!([{"n": n, "text": text}]);
            kept.keep(&format!("msg_{n}"), items.to_string());
        }
        kept.keep("too large", json!([text, text]).to_string());
        let found = |id: &str| Resolver::new(&kept).items(id).is_ok();
        let known: Vec<bool> = (0..12).map(|n| found(&format!("msg_{n}"))).collect();
        assert_eq!(known, [[false; 5].as_slice(), &[true; 7]].concat());
        assert!(!found("too large") && !found("never"));

        let mut resolver = Resolver::new(&kept);
        assert_eq!(resolver.items("msg_11").unwrap()[0]["n"], json!(11));
        assert!(resolver.items("msg_11").is_err());
        assert!(Resolver::new(&kept).items("msg_10").is_ok());
        let mut resolver = Resolver::new(&kept);
        resolver.items("msg_10").unwrap();
        assert!(resolver.items("msg_9").is_err(), "too much in all");
    }
}
