#![no_main]
libfuzzer_sys::fuzz_target!(|input: &[u8]| kilim_fuzz::target::column::check(input));
