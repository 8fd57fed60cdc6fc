//! Machines made of nonsense.

use std::time::Duration;

use llmsrv_monitor::{Look, Raw, Root, Sample, State, draw, plain};
use proptest::prelude::*;
use ratatui::{buffer::Buffer, layout::Rect};

use crate::fixture::{AFTER, BEFORE, write};

/// A text of the fixture with some of it replaced.
fn spoiled(text: &'static str) -> impl Strategy<Value = String> {
    let noise = prop_oneof![
        Just("18446744073709551615".to_owned()),
        Just("-1".to_owned()),
        Just("\u{1b}[31m".to_owned()),
        Just("模型".to_owned()),
        Just(String::new()),
        any::<String>(),
    ];
    prop::collection::vec((0..40_usize, noise), 0..4).prop_map(move |changes| {
        let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        for (at, noise) in changes {
            let n_words = words.len();
            words[at % n_words] = noise;
        }
        words.join(" ")
    })
}

fn machine(files: &'static [(&'static str, &'static str)]) -> impl Strategy<Value = Vec<String>> {
    files
        .iter()
        .map(|(_, text)| spoiled(text))
        .collect::<Vec<_>>()
}

fn put(dir: &std::path::Path, files: &[(&str, &str)], texts: &[String]) {
    let files: Vec<_> = files
        .iter()
        .zip(texts)
        .map(|((path, _), text)| (*path, text.as_str()))
        .collect();
    write(dir, &files);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn nothing_panics_whatever_the_files_hold(
        before in machine(BEFORE),
        after in machine(AFTER),
        width in 0..120_u16,
        height in 0..40_u16,
        ascii in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path()).unwrap();
        put(dir.path(), BEFORE, &before);
        let first = Raw::read(&root, Some(4242));
        put(dir.path(), AFTER, &after);
        let second = Raw::read(&root, Some(4242));
        let sample = Sample::between(&first, &second, Duration::from_secs(1));
        serde_json::to_string(&sample).unwrap();
        let text = plain(&sample, ascii);
        prop_assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        prop_assert!(!ascii || text.is_ascii());
        let mut state = State::new(Duration::from_secs(1), ascii);
        state.add(sample);
        let area = Rect::new(0, 0, width, height);
        let mut buf = Buffer::empty(area);
        draw(area, &mut buf, &mut state, Look { color: true }, "12:00:00");
        for cell in buf.content() {
            prop_assert!(!cell.symbol().contains(char::is_control));
            prop_assert!(!ascii || cell.symbol().is_ascii(), "{:?}", cell.symbol());
        }
    }
}
