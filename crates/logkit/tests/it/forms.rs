//! Functions of every form: with an attribute they compile without a warning, and return what they did.

use std::fmt;

use logkit::{catch, log_call, logged};

use crate::macros::{entries, logger};

// In one line: rustc warns of unnecessary braces only there.
#[rustfmt::skip]
mod lines {
    use super::{catch, fmt, log_call, logged, logger};

    #[log_call(logger = logger())]
    pub(super) fn first(text: &str) -> &str { &text[..1] }

    #[log_call(logger = logger())]
    pub(super) fn longest<'a>(a: &'a str, b: &'a str) -> &'a str { if a.len() > b.len() { a } else { b } }

    #[log_call(logger = logger())]
    pub(super) fn push(list: &mut Vec<u8>, n: u8) -> &mut u8 { list.push(n); list.last_mut().unwrap() }

    #[log_call(logger = logger())]
    pub(super) fn maps(f: impl Fn(u8) -> u8, mut n: u8) -> impl Iterator<Item = u8> { n += 1; (0..n).map(f) }

    #[log_call(logger = logger())]
    pub(super) fn calls(f: Box<dyn FnOnce() -> u8>) -> u8 { f() }

    #[log_call(logger = logger())]
    pub(super) fn takes_apart((a, b): (u8, u8), [c, ..]: [u8; 3], _: u8, _unused: u8) -> u8 { a + b + c }

    #[log_call(logger = logger())]
    pub(super) fn generic<T: Clone + fmt::Debug, const N: usize>(items: [T; N]) -> Vec<T> { items.to_vec() }

    #[log_call(logger = logger())]
    pub(super) fn higher<F>(f: F) -> String where F: for<'x> Fn(&'x str) -> &'x str { f("abc").to_owned() }

    #[log_call(logger = logger())]
    pub(super) fn each<'a>(items: &'a [u8], see: &mut dyn FnMut(&'a u8)) { for item in items { see(item); } }

    #[log_call(logger = logger())]
    pub(super) fn early(n: u32) -> Result<u32, std::num::ParseIntError> { if n > 3 { return "5".parse(); } Ok(n) }

    #[log_call(logger = logger())]
    pub(super) fn depth(n: u32) -> u32 { if n == 0 { 0 } else { depth(n - 1) + 1 } }

    #[catch(default = 7, logger = logger())]
    pub(super) fn caught(text: String) -> u32 { text.parse().unwrap() }

    #[log_call(logger = logger())]
    pub(super) fn never(what: &str) -> ! { panic!("{what}") }

    #[derive(Debug)]
    pub(super) struct Owner<'a> { pub text: &'a str, pub n: u32 }

    #[logged(logger = logger())]
    impl<'a> Owner<'a> {
        pub fn text(&self) -> &'a str { self.text }
        pub fn part(&self, n: usize) -> &str { &self.text[..n] }
        pub fn add(&mut self, n: u32) -> &mut u32 { self.n += n; &mut self.n }
        pub fn boxed(self: Box<Self>) -> u32 { self.n }
        pub fn end(self, more: String) -> String { format!("{}{more}{}", self.text, self.n) }
    }

    impl Owner<'_> {
        #[log_call(logger = logger(), fields(n = self.n, twice = n * 2))]
        pub fn add_with_fields(&mut self, n: u32) -> u32 { self.n += n; self.n }
    }
}

#[test]
fn functions_of_every_form_do_what_they_did() {
    let (mut list, mut sum) = (vec![1], 0);
    *lines::push(&mut list, 2) = 3;
    lines::each(&list, &mut |item| sum += item);
    assert_eq!((list, sum), (vec![1, 3], 4));
    assert_eq!(
        (lines::first("abc"), lines::longest("a", "bc")),
        ("a", "bc")
    );
    assert_eq!(lines::maps(|n| n + 1, 2).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(lines::calls(Box::new(|| 3)), 3);
    assert_eq!(lines::takes_apart((1, 2), [3, 4, 5], 6, 7), 6);
    assert_eq!(lines::generic([1, 2]), [1, 2]);
    assert_eq!(lines::higher(|text| &text[1..]), "bc");
    assert_eq!((lines::early(1), lines::early(9)), (Ok(1), Ok(5)));
    assert_eq!((lines::depth(3), lines::caught("x".into())), (3, 7));
    assert!(std::panic::catch_unwind(|| lines::never("ever")).is_err());
    let mut owner = lines::Owner { text: "abc", n: 1 };
    *owner.add(2) += 1;
    assert_eq!((owner.part(2), owner.text()), ("ab", "abc"));
    assert_eq!(owner.add_with_fields(2), 6);
    assert_eq!(owner.end("-".into()), "abc-6");
    assert_eq!(Box::new(lines::Owner { text: "", n: 9 }).boxed(), 9);

    let entries = entries();
    let with_fields = entries
        .iter()
        .find(|entry| entry.function_name.contains("add_with_fields"));
    assert_eq!(with_fields.unwrap().extra["twice"], 4);
    let n_levels = entries
        .iter()
        .filter(|entry| entry.function_name == "depth")
        .count();
    assert_eq!((entries.len(), n_levels), (23, 4));
}
