//! MurmurHash3 (128 bits, for 64-bit machines), by which version 2 of a text index shortens long terms. On disk.

/// The hash with seed 0, in its own order of bytes.
pub fn murmur3(data: &[u8]) -> [u8; 16] {
    const FIRST: u64 = 0x87c3_7b91_1142_53d5;
    const SECOND: u64 = 0x4cf5_ad43_2745_937f;
    let (mut one, mut two) = (0u64, 0u64);
    let mix_one = |k: u64| k.wrapping_mul(FIRST).rotate_left(31).wrapping_mul(SECOND);
    let mix_two = |k: u64| k.wrapping_mul(SECOND).rotate_left(33).wrapping_mul(FIRST);
    let (blocks, tail) = data.as_chunks::<16>();
    let halves = |block: &[u8; 16]| {
        let block = u128::from_le_bytes(*block);
        (block as u64, (block >> 64) as u64)
    };
    for block in blocks {
        let (first, second) = halves(block);
        one = (one ^ mix_one(first))
            .rotate_left(27)
            .wrapping_add(two)
            .wrapping_mul(5)
            .wrapping_add(0x52dc_e729);
        two = (two ^ mix_two(second))
            .rotate_left(31)
            .wrapping_add(one)
            .wrapping_mul(5)
            .wrapping_add(0x3849_5ab5);
    }
    let mut last = [0; 16];
    last[..tail.len()].copy_from_slice(tail);
    let (first, second) = halves(&last);
    two ^= mix_two(second);
    one ^= mix_one(first);
    let finish = |mut k: u64| {
        k = (k ^ (k >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        k = (k ^ (k >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        k ^ (k >> 33)
    };
    one ^= data.len() as u64;
    two ^= data.len() as u64;
    one = one.wrapping_add(two);
    two = two.wrapping_add(one);
    one = finish(one);
    two = finish(two);
    one = one.wrapping_add(two);
    two = two.wrapping_add(one);
    let mut hash = [0; 16];
    hash[..8].copy_from_slice(&one.to_le_bytes());
    hash[8..].copy_from_slice(&two.to_le_bytes());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_in_mongods_keys() {
        let hash = |text: String| {
            murmur3(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        assert_eq!(hash("x".repeat(64)), "3f36b67e1aaa612310caa2cf9248f0dc");
        assert_eq!(hash("é".repeat(100)), "327f14a801b3ce2e75ed07a1d714b3cf");
        assert_eq!(hash("z".repeat(256)), "6090dd391fb5a858322b1800c2cde06e");
    }
}
