/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Text by a format, as the kernel's BPF helpers write it. As there, all of a format is checked first, and strings are
 * copied then, into memory of limited size: a format that is wrong writes nothing.
 */
#ifndef FORMAT_H
#define FORMAT_H

#include "memory.h"

/* The kernel's limits: bytes of arguments that are copied, and the widest field. */
#define ARGUMENT_BYTES 512
#define MAX_ARGUMENTS  12
#define WIDEST	       ((1 << 23) - 1)
#define POINTER_DIGITS 16

/* Flags of a field. */
enum {
	LEFT = 1,
	PLUS = 2,
	SPACE = 4,
	ZEROS = 8
};

/* What a field shows. */
enum field_kind {
	INTEGER,
	CHARACTER,
	STRING,
	ADDRESS,
	/* As the kernel shows what is no address of its code. */
	SYMBOL,
	/* A symbol without regard to the field's width. */
	PLAIN_SYMBOL,
	/* Addresses of 4 and 16 bytes. */
	IPV4,
	IPV6
};

struct field {
	enum field_kind kind;
	u8 flags;
	u8 is_long;
	u8 is_signed;
	u8 is_upper;
	/* 10 or 16. Of Internet addresses, whether they are in their usual form. */
	u8 base;
	s64 width;
	/* What follows it in the format. */
	const u8 *next;
};

struct arguments {
	const u64 *words;
	u64 count;
	/* What the kernel copies them to. Only strings stand there; the last byte ends them, whatever the format says now. */
	u8 copied[ARGUMENT_BYTES + 1];
	u64 used;
};

/* Where text goes. The length counts what has no room too. */
struct text {
	u8 *start;
	u64 room;
	u64 length;
};

static u8 is_digit(u8 c)
{
	return c >= '0' && c <= '9';
}

/* As the kernel sees it: bytes from 0x80 are those of ISO 8859-1. */
static u8 is_alphanumeric(u8 c)
{
	return is_digit(c) || (c | 32) - 'a' < 26u || (c >= 0xc0 && c != 0xd7 && c != 0xf7);
}

/* Whether a field may end before it: at the end, space, or punctuation. */
static u8 is_end(u8 c)
{
	return !is_alphanumeric(c) && (c < 0x80 || c >= 0xa0);
}

static u8 is_text(u8 c)
{
	return (c >= ' ' && c != 0x7f) || (c >= '\t' && c <= '\r');
}

/* What follows a `p`. Whether that is something. */
static u8 parse_pointer(struct field *field, const u8 *at)
{
	field->is_long = 1;
	field->base = 16;
	field->kind = ADDRESS;
	if (is_end(at[0])) {
		field->next = at;
		return 1;
	}
	if ((at[0] == 'k' || at[0] == 'u') && at[1] == 's') {
		field->kind = STRING;
		/* The kernel has copied it, and does not look at the width any more. */
		field->width = 0;
		field->next = at + 2;
		return is_end(at[2]);
	}
	if (at[0] == 's' || at[0] == 'S') {
		field->kind = SYMBOL;
	} else if (at[0] == 'B') {
		field->kind = PLAIN_SYMBOL;
	} else if ((at[0] == 'i' || at[0] == 'I') && (at[1] == '4' || at[1] == '6')) {
		field->kind = at[1] == '4' ? IPV4 : IPV6;
		field->base = at[0] == 'I';
	} else if (at[0] != 'K' && at[0] != 'x') {
		return 0;
	}
	/* Letters and digits behind it belong to it, whatever they are. */
	while (is_alphanumeric(*at))
		at++;
	field->next = at;
	return 1;
}

/* The field behind a `%`. Whether there is one. */
static u8 parse(struct field *field, const u8 *at)
{
	field->flags = 0;
	field->width = 0;
	field->is_long = 0;
	field->is_signed = 0;
	field->is_upper = 0;
	field->base = 10;
	for (;; at++) {
		if (*at == '-')
			field->flags |= LEFT;
		else if (*at == '+')
			field->flags |= PLUS;
		else if (*at == ' ')
			field->flags |= SPACE;
		else if (*at == '0')
			field->flags |= ZEROS;
		else
			break;
	}
	for (; is_digit(*at); at++)
		if (field->width < WIDEST)
			field->width = field->width * 10 + *at - '0';
	if (field->width > WIDEST)
		field->width = WIDEST;
	if (*at == 'p')
		return parse_pointer(field, at + 1);
	if (*at == 's' || *at == 'c') {
		field->kind = *at == 's' ? STRING : CHARACTER;
		field->next = at + 1;
		return *at == 'c' || is_end(at[1]);
	}
	if (*at == 'l') {
		field->is_long = 1;
		at += at[1] == 'l' ? 2 : 1;
	}
	field->kind = INTEGER;
	field->is_signed = *at == 'd' || *at == 'i';
	field->is_upper = *at == 'X';
	if ((*at | 32) == 'x')
		field->base = 16;
	field->next = at + 1;
	return field->is_signed || *at == 'u' || (*at | 32) == 'x';
}

static void put(struct text *text, u8 c)
{
	if (text->length < text->room)
		text->start[text->length] = c;
	text->length++;
}

/* Pads a field. Widths may be far beyond the room. */
static void pad(struct text *text, u8 c, s64 count)
{
	for (; count > 0 && text->length < text->room; count--)
		put(text, c);
	if (count > 0)
		text->length += count;
}

static void put_string(struct text *text, const struct field *field, const u8 *string)
{
	s64 length = 0;
	u64 i;

	while (string[length])
		length++;
	if (!(field->flags & LEFT))
		pad(text, ' ', field->width - length);
	for (i = 0; i < (u64)length; i++)
		put(text, string[i]);
	if (field->flags & LEFT)
		pad(text, ' ', field->width - length);
}

/* A number's digits, the last one first. Returns how many. */
static u32 digits_of(u8 *digits, u64 number, u32 base, u8 is_upper)
{
	u32 count = 0, digit;

	do {
		digit = number % base;
		number /= base;
		digits[count++] = digit < 10 ? '0' + digit : (is_upper ? 'A' : 'a') + digit - 10;
	} while (number);
	return count;
}

static void put_number(struct text *text, const struct field *field, u64 number)
{
	u8 digits[24], sign = 0, pads_zeros = field->flags & ZEROS && !(field->flags & LEFT);
	s64 width = field->width;
	u32 count;

	if (field->is_signed) {
		if ((s64)number < 0) {
			sign = '-';
			number = -number;
		} else if (field->flags & PLUS) {
			sign = '+';
		} else if (field->flags & SPACE) {
			sign = ' ';
		}
	}
	count = digits_of(digits, number, field->base, field->is_upper);
	width -= count + (sign != 0);
	if (!pads_zeros && !(field->flags & LEFT))
		pad(text, ' ', width);
	if (sign)
		put(text, sign);
	if (pads_zeros)
		pad(text, '0', width);
	while (count)
		put(text, digits[--count]);
	if (field->flags & LEFT)
		pad(text, ' ', width);
}

static u64 narrowed(const struct field *field, u64 word)
{
	if (field->is_long)
		return word;
	return field->is_signed ? (u64)(s64)(int)word : (u64)(u32)word;
}

/* `0x` and the digits, with a zero behind. */
static u64 write_symbol(u8 *to, u64 address)
{
	u8 digits[24];
	u32 count = digits_of(digits, address, 16, 0);
	u64 at = 0;

	to[at++] = '0';
	to[at++] = 'x';
	while (count)
		to[at++] = digits[--count];
	to[at++] = 0;
	return at;
}

/* An Internet address, with a zero behind. Where it can't be read, it is zero. */
static u64 write_address(u8 *to, const struct field *field, u64 from)
{
	u8 bytes[16], digits[24];
	u32 i, size = field->kind == IPV4 ? 4 : 16, width, count;
	u64 at = 0;

	if (!read(bytes, from, size))
		clear(bytes, size);
	for (i = 0; i < size; i++) {
		if (i && field->kind == IPV4)
			to[at++] = '.';
		else if (i && field->base && i % 2 == 0)
			to[at++] = ':';
		count = digits_of(digits, bytes[i], field->kind == IPV4 ? 10 : 16, 0);
		width = field->kind == IPV6 ? 2 : field->base ? 1 : 3;
		for (; width > count; width--)
			to[at++] = '0';
		while (count)
			to[at++] = digits[--count];
	}
	to[at++] = 0;
	return at;
}

/* Takes so many bytes of the copied arguments. Whether there were as many. */
static u8 take(struct arguments *arguments, u64 bytes, u64 alignment)
{
	arguments->used = (arguments->used + alignment - 1) & -alignment;
	if (arguments->used + bytes > ARGUMENT_BYTES)
		return 0;
	arguments->used += bytes;
	return 1;
}

/* Copies what a field needs of its argument. 0, or an error. */
static s64 copy_argument(struct arguments *arguments, const struct field *field, u64 word)
{
	u8 *to = arguments->copied + arguments->used;
	u64 room = ARGUMENT_BYTES - arguments->used;
	u8 written[64];
	s64 bytes;

	switch (field->kind) {
	case INTEGER:
	case ADDRESS:
	case SYMBOL:
		return take(arguments, field->is_long ? 8 : 4, 4) ? 0 : -ENOSPC;
	case CHARACTER:
		return take(arguments, 1, 1) ? 0 : -ENOSPC;
	case STRING:
		if (!room)
			return -ENOSPC;
		bytes = bpf_probe_read_user_str(to, room, word);
		if (bytes < 0) {
			to[0] = 0;
			bytes = 1;
		}
		break;
	default:
		if (room < (field->kind == IPV6 ? 16 : 4))
			return -ENOSPC;
		if (field->kind == PLAIN_SYMBOL)
			bytes = write_symbol(written, word);
		else
			bytes = write_address(written, field, word);
		if ((u64)bytes > room)
			bytes = room;
		written[bytes - 1] = 0;
		copy(to, written, bytes);
	}
	arguments->used += bytes;
	return 0;
}

/* Checks a format, and copies its arguments. 0, or an error. */
static s64 prepare(struct arguments *arguments, const u8 *format)
{
	struct field field;
	u64 index = 0;
	s64 error;

	arguments->used = 0;
	while (*format) {
		if (!is_text(*format))
			return -EINVAL;
		if (*format++ != '%')
			continue;
		if (*format == '%') {
			format++;
			continue;
		}
		if (index >= arguments->count || !parse(&field, format))
			return -EINVAL;
		error = copy_argument(arguments, &field, arguments->words[index++]);
		if (error)
			return error;
		format = field.next;
	}
	return 0;
}

/* Where the copy of a field's argument begins; what follows it is next. */
static const u8 *next_argument(struct arguments *arguments, const struct field *field)
{
	const u8 *at;

	if (field->kind == INTEGER || field->kind == ADDRESS || field->kind == SYMBOL) {
		take(arguments, field->is_long ? 8 : 4, 4);
		return NULL;
	}
	if (arguments->used > ARGUMENT_BYTES)
		arguments->used = ARGUMENT_BYTES;
	at = arguments->copied + arguments->used;
	arguments->used++;
	if (field->kind != CHARACTER)
		while (arguments->copied[arguments->used - 1])
			arguments->used++;
	return at;
}

static void put_field(struct text *text, struct field *field, u64 word, const u8 *copied)
{
	u8 symbol[24];

	switch (field->kind) {
	case CHARACTER:
		if (!(field->flags & LEFT))
			pad(text, ' ', field->width - 1);
		put(text, word);
		if (field->flags & LEFT)
			pad(text, ' ', field->width - 1);
		break;
	case ADDRESS:
		if (!field->width) {
			field->width = POINTER_DIGITS;
			field->flags |= ZEROS;
		}
		/* fallthrough */
	case INTEGER:
		put_number(text, field, narrowed(field, word));
		break;
	case SYMBOL:
		write_symbol(symbol, word);
		put_string(text, field, symbol);
		break;
	case STRING:
		put_string(text, field, copied);
		break;
	default:
		field->width = 0;
		put_string(text, field, copied);
	}
}

/*
 * Writes the text, with a zero behind, cut where there is no room. Returns its length with what was cut, or an error:
 * then nothing was written.
 */
static s64 format(u8 *to, u64 room, const u8 *format, struct arguments *arguments)
{
	struct text text = { to, room, 0 };
	struct field field;
	const u8 *copied;
	u64 index = 0;
	s64 error = prepare(arguments, format);

	if (error)
		return error;
	arguments->used = 0;
	arguments->copied[ARGUMENT_BYTES] = 0;
	while (*format) {
		if (*format != '%' || format[1] == '%') {
			put(&text, *format);
			format += *format == '%' ? 2 : 1;
			continue;
		}
		/* Another thread may have changed it since it was checked. */
		if (index >= arguments->count || !parse(&field, format + 1))
			break;
		copied = next_argument(arguments, &field);
		put_field(&text, &field, arguments->words[index++], copied);
		format = field.next;
	}
	if (room)
		to[text.length < room ? text.length : room - 1] = 0;
	return text.length;
}

READS s64 bpf_snprintf(u8 *to, u32 room, const u8 *text, const u64 *words, u32 bytes)
{
	struct arguments arguments;
	s64 length;

	if (bytes % 8 || bytes > MAX_ARGUMENTS * 8 || (bytes && !words))
		return -EINVAL;
	arguments.words = words;
	arguments.count = bytes / 8;
	length = format(to, room, text, &arguments);
	/* With the zero. */
	return length < 0 ? length : length + 1;
}

#endif
