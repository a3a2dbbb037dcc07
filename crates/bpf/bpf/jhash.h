/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Jenkins' lookup3 hash for whole 32-bit words, with the kernel's initial value, so that
 * rings agree with those of load balancers in use. Source: Bob Jenkins, "lookup3.c" (2006,
 * public domain).
 */
#ifndef JHASH_H
#define JHASH_H

#include <linux/types.h>

#define JHASH_INITIAL 0xdeadbeef

static __always_inline __u32 rotate_left(__u32 word, unsigned int bits)
{
	return word << bits | word >> (32 - bits);
}

static __always_inline void jhash_mix(__u32 *a, __u32 *b, __u32 *c)
{
	*a -= *c, *a ^= rotate_left(*c, 4), *c += *b;
	*b -= *a, *b ^= rotate_left(*a, 6), *a += *c;
	*c -= *b, *c ^= rotate_left(*b, 8), *b += *a;
	*a -= *c, *a ^= rotate_left(*c, 16), *c += *b;
	*b -= *a, *b ^= rotate_left(*a, 19), *a += *c;
	*c -= *b, *c ^= rotate_left(*b, 4), *b += *a;
}

static __always_inline __u32 jhash_final(__u32 a, __u32 b, __u32 c)
{
	c ^= b, c -= rotate_left(b, 14);
	a ^= c, a -= rotate_left(c, 11);
	b ^= a, b -= rotate_left(a, 25);
	c ^= b, c -= rotate_left(b, 16);
	a ^= c, a -= rotate_left(c, 4);
	b ^= a, b -= rotate_left(a, 14);
	c ^= b, c -= rotate_left(b, 24);
	return c;
}

/* Two words. */
static __always_inline __u32 jhash_2words(__u32 first, __u32 second, __u32 initial)
{
	__u32 start = JHASH_INITIAL + (2 << 2) + initial;

	return jhash_final(start + first, start + second, start);
}

/* Sixteen bytes, as an IPv6 address. */
static __always_inline __u32 jhash_4words(const __u32 *word, __u32 initial)
{
	__u32 a, b, c;

	a = b = c = JHASH_INITIAL + 16 + initial;
	a += word[0];
	b += word[1];
	c += word[2];
	jhash_mix(&a, &b, &c);
	return jhash_final(a + word[3], b, c);
}

#endif
