//! Identifiers of tool calls.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns `call_` and eight characters of `[a-z0-9]`, never the same twice in a process.
pub fn tool_call_id() -> String {
    static START: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one("tool call") % IDS);
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let count = u128::from(NEXT.fetch_add(1, Ordering::Relaxed));
    // STEP shares no factor with IDS, so the sequence visits every id before it repeats.
    let mut number = ((u128::from(*START) + count * STEP) % u128::from(IDS)) as u64;
    let mut id = String::from("call_");
    for _ in 0..8 {
        let digit = (number % 36) as u32;
        id.push(char::from_digit(digit, 36).unwrap_or('0'));
        number /= 36;
    }
    id
}

/// 36 to the power of 8.
const IDS: u64 = 2_821_109_907_456;
/// Close to the golden section of [`IDS`], neither even nor a multiple of three.
const STEP: u128 = 1_743_541_823_717;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_well_formed_and_unique() {
        let (mut a, mut b) = (STEP, u128::from(IDS));
        while b != 0 {
            (a, b) = (b, a % b);
        }
        assert_eq!(a, 1, "common factor");
        let ids: HashSet<String> = (0..10_000).map(|_| tool_call_id()).collect();
        assert_eq!(ids.len(), 10_000);
        for id in ids {
            let tail = id.strip_prefix("call_").unwrap();
            assert_eq!(tail.len(), 8);
            assert!(
                tail.bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
            );
        }
    }
}
