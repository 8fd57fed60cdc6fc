//! The pages of `docs/`, which `packaging/docs` builds as a site: all of them are in its contents, and links lead
//! somewhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The pages below a folder, by their paths from the root of the sources.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let path = folder.join(entry.unwrap().file_name());
        if root().join(&path).is_dir() {
            found.extend(pages(&path));
        } else if path.extension().is_some_and(|it| it == "md") {
            found.push(path);
        }
    }
    found
}

/// The lines of a page without blocks of code, and without code in them.
fn prose(text: &str) -> Vec<String> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            lines.push(line.split('`').step_by(2).collect());
        }
    }
    lines
}

/// The targets of the links and images of a page.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        let targets = line.split("](").skip(1);
        found.extend(targets.map(|rest| rest.split([')', ' ']).next().unwrap().to_owned()));
    }
    found
}

/// The names by which links reach the headings of a page: small letters, digits, `-` and `_`; `-` for blanks;
/// numbered where a name is there already.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut n_found = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        let title = line.trim_start_matches('#');
        if is_code || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = title.trim().chars().filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            c => c.is_alphanumeric().then_some(c.to_ascii_lowercase()),
        });
        let name: String = kept.collect();
        let n = n_found.entry(name.clone()).or_insert(0);
        anchors.insert(if *n == 0 { name } else { format!("{name}-{n}") });
        *n += 1;
    }
    anchors
}

/// What is wrong with a link of a page, if anything is.
fn fault(page: &Path, link: &str) -> Option<&'static str> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let mut target = PathBuf::new();
    if path.is_empty() {
        target.clone_from(&page.to_path_buf());
    } else {
        for part in page.parent().unwrap().join(path).components() {
            match part {
                Component::ParentDir => {
                    target.pop();
                }
                part => target.push(part),
            }
        }
    }
    if page.starts_with("docs") && !target.starts_with("docs") {
        return Some("leads out of the site");
    }
    let Ok(found) = fs::metadata(root().join(&target)) else {
        return Some("leads to no file");
    };
    if anchor.is_empty() {
        return (page.starts_with("docs") && found.is_dir()).then_some("leads to a folder");
    }
    let text = fs::read_to_string(root().join(&target)).unwrap();
    (!anchors(&text).contains(anchor)).then_some("leads to no heading")
}

#[test]
fn every_page_is_in_the_contents_once() {
    let contents = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let mut listed: Vec<PathBuf> = links(&contents)
        .iter()
        .map(|link| Path::new("docs").join(link))
        .collect();
    let mut there = pages(Path::new("docs"));
    there.retain(|path| path != Path::new("docs/SUMMARY.md"));
    listed.sort();
    there.sort();
    assert_eq!(listed, there);
}

#[test]
fn every_link_leads_to_a_file_or_a_heading() {
    let mut documents = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"]
        .map(PathBuf::from)
        .to_vec();
    documents.extend(pages(Path::new("docs")));
    let mut n_links = 0;
    let mut faults = Vec::new();
    for page in documents {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        for link in links(&text) {
            n_links += 1;
            if let Some(what) = fault(&page, &link) {
                faults.push(format!("{}: {link} {what}", page.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(n_links > 200, "{n_links}");
}

#[test]
fn links_are_told_from_code_and_faults_from_links() {
    let page = "# A `b`: c_d\n\n## A b c_d\n```\n# no\n[no](no.md)\n```\n## A b c_d\n\
                [x](y.md#z) `[no](no)` and ![p](q.png \"title\")\n";
    assert_eq!(links(page), ["y.md#z", "q.png"]);
    let expected = ["a-b-c_d", "a-b-c_d-1", "a-b-c_d-2"];
    assert_eq!(anchors(page), expected.map(str::to_owned).into());

    let page = Path::new("docs/contracts/logkit.md");
    for (link, expected) in [
        ("../logkit.md#secrets", None),
        ("https://example.com/", None),
        ("../logkit.md#no-such-heading", Some("leads to no heading")),
        ("../no-such-page.md", Some("leads to no file")),
        ("../../README.md", Some("leads out of the site")),
        ("..", Some("leads to a folder")),
    ] {
        assert_eq!(fault(page, link), expected, "{link}");
    }
}
