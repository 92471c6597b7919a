//! Every target with a fixed number of inputs, the same ones each time: what the specs ask, and changes of it.
//!
//! `KILIM_FUZZ_INPUTS` multiplies the number of inputs, `KILIM_FUZZ_SEED` chooses others, `KILIM_FUZZ_TARGET` names the
//! only target to be run.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Once};
use std::thread;
use std::time::{Duration, Instant};

use kilim_fuzz::mutation::Mutator;
use kilim_fuzz::target;
use kilim_testkit::seeds::Seeds;

/// What takes longer is a hang, however slow the machine.
const HANG: Duration = Duration::from_secs(60);

/// As a connection's thread has.
const STACK_BYTES: usize = 8 << 20;

static SEEDS: LazyLock<Seeds> = LazyLock::new(|| {
    Seeds::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs")).expect("specs can be read")
});

/// Panics so far, those included that somebody caught: a command answers a panic with an error.
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// A target.
type Check = fn(&[u8]);

/// The input that is being looked at, and since when.
type Current = Arc<Mutex<(Vec<u8>, Instant)>>;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs so many of the seeds themselves, and then as many changed ones.
fn run(name: &'static str, check: Check, inputs: usize) {
    count_panics();
    let inputs = inputs * setting("KILIM_FUZZ_INPUTS").unwrap_or(1) as usize;
    let mut seeds: Vec<Vec<u8>> = SEEDS.of(name).map(<[u8]>::to_vec).collect();
    if seeds.is_empty() {
        seeds = some_bytes();
    }
    let current: Current = Arc::new(Mutex::new((Vec::new(), Instant::now())));
    let watched = current.clone();
    let work = move || {
        let mut mutator = Mutator::new(&seeds, setting("KILIM_FUZZ_SEED").unwrap_or(1));
        for seed in seeds.iter().step_by(seeds.len().div_ceil(inputs)) {
            check_one(name, check, seed, &current);
        }
        for _ in 0..inputs {
            check_one(name, check, &mutator.next_input(), &current);
        }
    };
    let worker = thread::Builder::new().stack_size(STACK_BYTES).spawn(work).expect("a thread can be started");
    while !worker.is_finished() {
        thread::sleep(Duration::from_millis(10));
        let (input, since) = &*watched.lock().expect("no panic while it is held");
        assert!(since.elapsed() < HANG, "{name} hangs on {}", input.escape_ascii());
    }
    worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// For a target to which no spec has a question: bytes of all kinds, the same ones each time.
fn some_bytes() -> Vec<Vec<u8>> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (1..64).map(|number| (0..number * 8).map(|_| next()).collect()).collect()
}

fn check_one(name: &str, check: Check, input: &[u8], current: &Current) {
    *current.lock().expect("no panic while it is held") = (input.to_vec(), Instant::now());
    let before = PANICS.load(Ordering::SeqCst);
    let outcome = std::panic::catch_unwind(|| check(input));
    assert!(
        outcome.is_ok() && PANICS.load(Ordering::SeqCst) == before,
        "{name} panics on {}",
        input.escape_ascii()
    );
}

fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let former = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.fetch_add(1, Ordering::SeqCst);
            former(panic);
        }));
    });
}

/// Each target and how many inputs it gets: together less than a minute of one core, unoptimised.
const TARGETS: &[(&str, Check, usize)] = &[
    ("wire", target::wire::check, 20_000),
    ("bson", target::bson::check, 10_000),
    ("extended_json", target::extended_json::check, 10_000),
    ("key_order", target::key_order::check, 20_000),
    ("collation", target::collation::check, 10_000),
    ("filter", target::filter::check, 20_000),
    ("validator", target::validator::check, 5_000),
    ("update", target::update::check, 10_000),
    ("projection", target::projection::check, 4_000),
    ("expression", target::expression::check, 10_000),
    ("pipeline", target::pipeline::check, 5_000),
    ("command", target::command::check, 10_000),
    ("recovery", target::recovery::check, 1_000),
    ("sasl", target::sasl::check, 5_000),
    ("access", target::access::check, 10_000),
    ("certificate", target::certificate::check, 20_000),
    ("column", target::column::check, 5_000),
];

/// One test, since reading the specs costs as much as a target does.
#[test]
fn no_input_breaks_a_promise() {
    let only = std::env::var("KILIM_FUZZ_TARGET").ok();
    let started = Instant::now();
    LazyLock::force(&SEEDS);
    println!("seeds read in {:.1} s", started.elapsed().as_secs_f64());
    for (name, check, inputs) in TARGETS {
        if only.as_deref().is_none_or(|only| only == *name) {
            let started = Instant::now();
            run(name, *check, *inputs);
            println!("{name}: {:.1} s", started.elapsed().as_secs_f64());
        }
    }
}
