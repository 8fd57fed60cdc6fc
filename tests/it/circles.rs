//! No circle of imports between the modules of a crate: in one, no part is understood without the others.
//!
//! A module is what `lib.rs` or `main.rs` declares, with all files below it. It imports what its text names
//! behind `crate::`; a name that the crate re-exports counts as its module.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use crate::tidy::{root, sources};

type Graph = BTreeMap<String, BTreeSet<String>>;

#[test]
fn no_modules_import_each_other_in_a_circle() {
    let found: BTreeSet<(String, Vec<String>)> = crates()
        .iter()
        .flat_map(|(name, files)| {
            let circles = circles(&graph(files));
            circles.into_iter().map(|circle| (name.clone(), circle))
        })
        .collect();
    assert!(found.is_empty(), "circles of imports: {found:#?}");
}

#[test]
fn a_planted_circle_is_found() {
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let files = [
        file(
            "lib.rs",
            "mod a;\nmod b;\nmod c;\npub use b::{Thing, other::More};\n",
        ),
        file("a.rs", "use crate::{Thing, c::{self, X}};\n"),
        file("b/deep.rs", "fn f() { crate::a::g() }\n"),
        file("c.rs", "// crate::a is only spoken of here\n"),
    ];
    assert_eq!(circles(&graph(&files)), [["a", "b"]]);
}

/// The files of each crate below its `src`, with their texts.
fn crates() -> BTreeMap<String, Vec<(String, String)>> {
    let mut crates: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for path in sources() {
        let (name, below) = match path.strip_prefix("crates/") {
            Some(rest) => rest.split_once('/').unwrap(),
            None => ("llmsrv", path.as_str()),
        };
        let Some(below) = below.strip_prefix("src/") else {
            continue;
        };
        if below.split('/').all(|part| part != "tests.rs") {
            let text = fs::read_to_string(root().join(&path)).unwrap();
            let files = crates.entry(name.to_owned()).or_default();
            files.push((below.to_owned(), text));
        }
    }
    crates
}

/// Which module imports which.
fn graph(files: &[(String, String)]) -> Graph {
    let code = |text: &str| -> String {
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let lines = code.lines().filter(|line| !line.trim().starts_with("//"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let is_top = |path: &str| matches!(path, "lib.rs" | "main.rs");
    let (mut declared, mut exported) = (BTreeSet::new(), BTreeMap::new());
    for (_, text) in files.iter().filter(|(path, _)| is_top(path)) {
        let text = code(text);
        for line in text.lines() {
            let line = line
                .trim_start_matches("pub ")
                .trim_start_matches("pub(crate) ");
            if let Some(name) = line
                .strip_prefix("mod ")
                .and_then(|it| it.strip_suffix(';'))
            {
                declared.insert(name.to_owned());
            }
        }
        for statement in text.split("use ").skip(1) {
            let statement = statement.split(';').next().unwrap();
            let mut words = words(statement);
            let module = words.next().unwrap_or_default().to_owned();
            exported.extend(words.map(|word| (word.to_owned(), module.clone())));
        }
    }
    let mut graph = Graph::new();
    for (path, text) in files.iter().filter(|(path, _)| !is_top(path)) {
        let module = path.split('/').next().unwrap().trim_end_matches(".rs");
        let imported = code(text)
            .split("crate::")
            .skip(1)
            .flat_map(first_names)
            .filter_map(|name| declared.get(&name).or_else(|| exported.get(&name)).cloned())
            .filter(|name| name != module && declared.contains(name))
            .collect::<BTreeSet<_>>();
        graph.entry(module.to_owned()).or_default().extend(imported);
    }
    graph
}

/// The identifiers of a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}

/// The first names of what stands behind `crate::`, one or several in braces.
fn first_names(text: &str) -> Vec<String> {
    let Some(group) = text.strip_prefix('{') else {
        return words(text).take(1).map(str::to_owned).collect();
    };
    let (mut depth, mut names, mut is_first) = (0, vec![String::new()], true);
    for letter in group.chars() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                names.push(String::new());
                is_first = true;
            }
            ':' | ' ' if !names.last().unwrap().is_empty() => is_first = false,
            letter if is_first && depth == 0 && !letter.is_whitespace() => {
                names.last_mut().unwrap().push(letter);
            }
            _ => {}
        }
    }
    names
}

/// Modules that reach each other, largest sets, in the order of their first names.
fn circles(graph: &Graph) -> Vec<Vec<String>> {
    let reached = |from: &String| -> BTreeSet<String> {
        let (mut seen, mut left) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(module) = left.pop() {
            for next in graph.get(&module).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    left.push(next.clone());
                }
            }
        }
        seen
    };
    let all: BTreeMap<&String, BTreeSet<String>> = graph
        .keys()
        .map(|module| (module, reached(module)))
        .collect();
    let circle = |module: &String| -> Vec<String> {
        let others = all[module].iter();
        let others = others.filter(|other| all.get(other).is_some_and(|it| it.contains(module)));
        others.cloned().collect()
    };
    let circles: BTreeSet<Vec<String>> = graph.keys().map(circle).collect();
    circles.into_iter().filter(|it| it.len() > 1).collect()
}
