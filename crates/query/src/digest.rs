//! MD5 (RFC 1321), because hashed keys are made with it. No protection against anyone: it is broken.

/// One step's addend: the integer part of 2³² · |sin(step)|, steps counted from one.
const SINES: [u32; 64] = [
    0xd76a_a478,
    0xe8c7_b756,
    0x2420_70db,
    0xc1bd_ceee,
    0xf57c_0faf,
    0x4787_c62a,
    0xa830_4613,
    0xfd46_9501,
    0x6980_98d8,
    0x8b44_f7af,
    0xffff_5bb1,
    0x895c_d7be,
    0x6b90_1122,
    0xfd98_7193,
    0xa679_438e,
    0x49b4_0821,
    0xf61e_2562,
    0xc040_b340,
    0x265e_5a51,
    0xe9b6_c7aa,
    0xd62f_105d,
    0x0244_1453,
    0xd8a1_e681,
    0xe7d3_fbc8,
    0x21e1_cde6,
    0xc337_07d6,
    0xf4d5_0d87,
    0x455a_14ed,
    0xa9e3_e905,
    0xfcef_a3f8,
    0x676f_02d9,
    0x8d2a_4c8a,
    0xfffa_3942,
    0x8771_f681,
    0x6d9d_6122,
    0xfde5_380c,
    0xa4be_ea44,
    0x4bde_cfa9,
    0xf6bb_4b60,
    0xbebf_bc70,
    0x289b_7ec6,
    0xeaa1_27fa,
    0xd4ef_3085,
    0x0488_1d05,
    0xd9d4_d039,
    0xe6db_99e5,
    0x1fa2_7cf8,
    0xc4ac_5665,
    0xf429_2244,
    0x432a_ff97,
    0xab94_23a7,
    0xfc93_a039,
    0x655b_59c3,
    0x8f0c_cc92,
    0xffef_f47d,
    0x8584_5dd1,
    0x6fa8_7e4f,
    0xfe2c_e6e0,
    0xa301_4314,
    0x4e08_11a1,
    0xf753_7e82,
    0xbd3a_f235,
    0x2ad7_d2bb,
    0xeb86_d391,
];

/// Rotations, four to a round.
const ROTATIONS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

const BLOCK: usize = 64;

pub struct Md5 {
    state: [u32; 4],
    /// What does not fill a block yet.
    block: [u8; BLOCK],
    length: u64,
}

impl Default for Md5 {
    fn default() -> Md5 {
        Md5::new()
    }
}

impl Md5 {
    /// The digest of bytes that lie together.
    pub fn of(bytes: &[u8]) -> [u8; 16] {
        let mut digest = Md5::new();
        digest.update(bytes);
        digest.finish()
    }

    pub fn new() -> Md5 {
        let state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
        Md5 { state, block: [0; BLOCK], length: 0 }
    }

    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let filled = (self.length % BLOCK as u64) as usize;
            let (now, rest) = bytes.split_at(bytes.len().min(BLOCK - filled));
            self.block[filled..filled + now.len()].copy_from_slice(now);
            self.length += now.len() as u64;
            if filled + now.len() == BLOCK {
                self.compress();
            }
            bytes = rest;
        }
    }

    pub fn finish(mut self) -> [u8; 16] {
        let bits = self.length.wrapping_mul(8);
        self.update(&[0x80]);
        while self.length % BLOCK as u64 != 56 {
            self.update(&[0]);
        }
        self.update(&bits.to_le_bytes());
        let mut digest = [0; 16];
        for (bytes, word) in digest.chunks_exact_mut(4).zip(self.state) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        digest
    }

    fn compress(&mut self) {
        let mut words = [0u32; 16];
        for (word, bytes) in words.iter_mut().zip(self.block.chunks_exact(4)) {
            *word = u32::from_le_bytes(bytes.try_into().expect("chunks have four bytes"));
        }
        let [mut a, mut b, mut c, mut d] = self.state;
        for step in 0..64 {
            let (mixed, word) = match step / 16 {
                0 => ((b & c) | (!b & d), step),
                1 => ((d & b) | (!d & c), 5 * step + 1),
                2 => (b ^ c ^ d, 3 * step + 5),
                _ => (c ^ (b | !d), 7 * step),
            };
            let sum = a.wrapping_add(mixed).wrapping_add(SINES[step]).wrapping_add(words[word % 16]);
            a = d;
            d = c;
            c = b;
            b = b.wrapping_add(sum.rotate_left(ROTATIONS[step / 16][step % 4]));
        }
        for (word, change) in self.state.iter_mut().zip([a, b, c, d]) {
            *word = word.wrapping_add(change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(text: &str) -> String {
        let mut hash = Md5::new();
        hash.update(text.as_bytes());
        hash.finish().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn digests_are_those_of_the_rfc() {
        assert_eq!(digest(""), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(digest("message digest"), "f96b697d7cb7938d525a2f31aaf161d0");
        let digits = "1234567890".repeat(8);
        assert_eq!(digest(&digits), "57edf4a22be3c955ac49da2e2107b67a");
    }
}
