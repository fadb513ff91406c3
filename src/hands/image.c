#include "hands/image.h"

#include <stdbool.h>
#include <stdint.h>

#define PAD 64 /* '=' in the digits of base64 */

static bool has_at(struct str s, size_t at, struct str what)
{
    return s.n >= at + what.n && memcmp(s.p + at, what.p, what.n) == 0;
}

static unsigned byte_at(struct str s, size_t at)
{
    return at < s.n ? (unsigned char)s.p[at] : 0;
}

static uint32_t big32(struct str s, size_t at)
{
    return byte_at(s, at) << 24 | byte_at(s, at + 1) << 16 | byte_at(s, at + 2) << 8 |
           byte_at(s, at + 3);
}

static uint32_t little16(struct str s, size_t at)
{
    return byte_at(s, at) | byte_at(s, at + 1) << 8;
}

static uint32_t little32(struct str s, size_t at)
{
    return little16(s, at) | little16(s, at + 2) << 16;
}

static bool is_png(struct str s)
{
    return s.n >= 16 && big32(s, 8) == 13 && has_at(s, 12, STR("IHDR"));
}

/* Animated: its control chunk comes before the pixels. */
static bool is_animated_png(struct str s)
{
    for (uint64_t at = 8; at + 8 <= s.n;) {
        if (has_at(s, at + 4, STR("acTL")))
            return true;
        if (has_at(s, at + 4, STR("IDAT")))
            return false;
        at += (uint64_t)big32(s, at) + 12;
    }
    return false;
}

static bool is_bmp(struct str s)
{
    if (s.n < 26)
        return false;
    uint64_t file = little32(s, 2), pixels = little32(s, 10), header = little32(s, 14);
    if ((file != 0 && file < 26) || pixels < 14 + header || (file != 0 && pixels >= file))
        return false;
    bool old = header == 12;
    if (!old && (header < 40 || header > 124 || s.n < 30))
        return false;
    uint32_t planes = little16(s, old ? 22 : 26), bits = little16(s, old ? 24 : 28);
    bool known_bits = bits == 1 || bits == 4 || bits == 8 || bits == 16 || bits == 24 || bits == 32;
    return planes == 1 && known_bits;
}

const char *image_mime_type(struct str s)
{
    if (has_at(s, 0, STR("\xff\xd8\xff")))
        return byte_at(s, 3) == 0xf7 ? NULL : "image/jpeg";
    if (has_at(s, 0, STR("\x89PNG\r\n\x1a\n")))
        return is_png(s) && !is_animated_png(s) ? "image/png" : NULL;
    if (has_at(s, 0, STR("GIF87a")) || has_at(s, 0, STR("GIF89a")))
        return "image/gif";
    if (has_at(s, 0, STR("RIFF")) && has_at(s, 8, STR("WEBP")))
        return "image/webp";
    return has_at(s, 0, STR("BM")) && is_bmp(s) ? "image/bmp" : NULL;
}

void image_base64(struct str bytes, struct buf *out)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
    buf_reserve(out, (bytes.n + 2) / 3 * 4);
    for (size_t i = 0; i < bytes.n; i += 3) {
        unsigned v = big32(bytes, i) >> 8;
        size_t left = bytes.n - i;
        buf_add_char(out, digits[v >> 18]);
        buf_add_char(out, digits[v >> 12 & 63]);
        buf_add_char(out, digits[left > 1 ? v >> 6 & 63 : PAD]);
        buf_add_char(out, digits[left > 2 ? v & 63 : PAD]);
    }
}
