//! The known name a mistyped one probably meant.

/// Returns the candidate nearest to `name`, if one is near enough to be a typing mistake.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Nobody mistypes a name this long; the table of distances stays small.
    if name.len() > 100 {
        return None;
    }
    let tolerance = (name.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| (distance(name, candidate), candidate))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, _)| *distance <= tolerance)
        .map(|(_, candidate)| candidate)
}

/// Counts the single-character edits between two texts; swapped neighbours are one edit
/// (the optimal string alignment distance). Case does not count.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.to_lowercase().chars().collect();
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut best = (rows[i][j] + usize::from(x != y))
                .min(rows[i][j + 1] + 1)
                .min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        let known = ["max_queue", "models", "keep_alive", "host"];
        for (name, found) in [
            ("max_que", Some("max_queue")),
            ("modles", Some("models")),
            ("MODELS", Some("models")),
            ("hots", Some("host")),
            ("banana", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, known), found, "{name}");
        }
    }

    proptest! {
        #[test]
        fn distance_is_a_distance(a in "[a-c]{0,6}", b in "[a-c]{0,6}") {
            prop_assert_eq!(distance(&a, &b), distance(&b, &a));
            prop_assert_eq!(distance(&a, &b) == 0, a == b);
            prop_assert!(distance(&a, &b) <= a.len().max(b.len()));
        }
    }
}
