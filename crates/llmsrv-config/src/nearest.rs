//! The known name a mistyped one probably meant.

/// Returns the candidate nearest to `name`, if one is near enough to be a typing mistake.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Nobody mistypes a name this long; the table of distances stays small.
    if name.len() > 100 {
        return None;
    }
    let tolerance = (name.chars().count() / 3).clamp(1, 3);
    let name = name.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| {
            // Swapped neighbours are one edit.
            let distance = strsim::osa_distance(&name, &candidate.to_lowercase());
            (distance, candidate)
        })
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, _)| *distance <= tolerance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
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
}
