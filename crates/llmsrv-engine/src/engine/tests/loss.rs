//! Devices that are lost: while they compute, and while nobody asks them to.

use std::time::Duration;

use crate::{
    EmbedError, EngineOptions, Event, Handle, Loaded, Model, ModelError, ModelSpec, OnLoss,
    StepPlan, SubmitError,
    fake::{self, Answer, FakeOptions},
    spawn,
};

/// A model that can be lost.
struct Fragile {
    model: Box<dyn Model>,
    steps_left: usize,
    tell: std::sync::mpsc::Sender<OnLoss>,
}

impl Fragile {
    fn step(&mut self) -> Result<(), ModelError> {
        let left = self.steps_left.checked_sub(1);
        self.steps_left = left.ok_or_else(|| ModelError::DeviceLost("unplugged".into()))?;
        Ok(())
    }
}

impl Model for Fragile {
    fn spec(&self) -> &ModelSpec {
        self.model.spec()
    }

    fn reserve_blocks(&mut self, n_blocks: usize) -> Result<(), ModelError> {
        self.model.reserve_blocks(n_blocks)
    }

    fn forward(&mut self, plan: &StepPlan, logits: &mut [f32]) -> Result<(), ModelError> {
        self.step()?;
        self.model.forward(plan, logits)
    }

    fn embed(&mut self, plan: &StepPlan, rows: &mut [f32]) -> Result<(), ModelError> {
        self.step()?;
        self.model.embed(plan, rows)
    }

    fn on_loss(&mut self, tell: OnLoss) {
        self.tell.send(tell).unwrap();
    }
}

fn fragile(fake: FakeOptions, steps_left: usize) -> (Handle, OnLoss) {
    let (tell, told) = std::sync::mpsc::channel();
    let Loaded {
        model,
        draft,
        tokenizer,
        vision,
    } = fake::loaded(fake);
    let model = Fragile {
        model,
        steps_left,
        tell,
    };
    let loaded = Loaded {
        model: Box::new(model),
        draft,
        tokenizer,
        vision,
    };
    let handle = spawn(loaded, EngineOptions::default());
    (handle, told.recv().unwrap())
}

#[test]
fn all_requests_hear_of_a_device_that_is_lost_in_a_step() {
    let fake = FakeOptions {
        answer: Answer::Endless,
        step_delay: Duration::from_millis(1),
        ..FakeOptions::default()
    };
    let (handle, _tell) = fragile(fake, 20);
    let mut requests: Vec<_> = ["a", "b", "c"]
        .iter()
        .map(|prompt| handle.submit(super::request(prompt)).unwrap())
        .collect();
    for request in &mut requests {
        let last = std::iter::from_fn(|| request.blocking_next()).last();
        assert!(
            matches!(&last, Some(Event::DeviceLost(why)) if why == "unplugged"),
            "{last:?}"
        );
        // Who sends it again finds another engine.
        assert!(!handle.is_alive());
    }
    let again = handle.submit(super::request("a"));
    assert!(matches!(&again, Err(SubmitError::DeviceLost(why)) if why == "unplugged"));
}

#[test]
fn vectors_are_lost_with_the_device() {
    for bidirectional in [false, true] {
        let mut fake = FakeOptions::default();
        if let Some(spec) = &mut fake.embedding {
            spec.bidirectional = bidirectional;
        }
        let (handle, _tell) = fragile(fake, 0);
        let vectors = handle.embed(vec![vec![65, 66], vec![67]]).unwrap();
        let lost = EmbedError::DeviceLost("unplugged".into());
        assert_eq!(vectors.blocking_wait(), Err(lost));
        assert!(!handle.is_alive());
    }
}

#[test]
fn an_idle_engine_ends_with_its_device() {
    let (handle, tell) = fragile(FakeOptions::default(), 1);
    tell("unplugged".into());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(handle.ending().wait());
    assert!(!handle.is_alive());
}

#[test]
fn who_tells_of_a_loss_does_not_keep_the_engine() {
    let (handle, tell) = fragile(FakeOptions::default(), 1);
    let ending = handle.ending();
    drop(handle);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(ending.wait());
    tell("unplugged".into());
}
