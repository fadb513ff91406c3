#include "images/name.h"

#include "base/path.h"

#include <stdio.h>

static bool is_lower(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static bool is_separator(char c)
{
    return c == '.' || c == '_' || c == '-';
}

static bool name_valid(struct str s)
{
    if (s.n == 0 || s.n > IMAGE_NAME_MAX || !is_lower(s.p[0]) || !is_lower(s.p[s.n - 1]))
        return false;
    for (size_t i = 1; i < s.n; i++) {
        if (!is_lower(s.p[i]) && !(is_separator(s.p[i]) && is_lower(s.p[i - 1])))
            return false;
    }
    return true;
}

static bool tag_valid(struct str s)
{
    if (s.n == 0 || s.n > IMAGE_TAG_MAX || s.p[0] == '.' || s.p[0] == '-')
        return false;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (!is_lower(c) && !is_separator(c) && !(c >= 'A' && c <= 'Z'))
            return false;
    }
    return true;
}

err image_name_parse(const char *ref, struct image_name *out)
{
    char shown[IMAGE_SHOWN_MAX];
    struct str rest = str_of(ref), name = {0}, tag = STR("latest");
    str_split(&rest, ':', &name);
    if (name.n < strlen(ref))
        tag = rest;
    if (!name_valid(name))
        return fail(E_INVALID,
                    "\"%s\" is no image name: use 1 to %d lower-case letters and digits with "
                    "single . _ or - between them, then perhaps :TAG",
                    image_shown(ref, shown), IMAGE_NAME_MAX);
    if (str_is(name, "host"))
        return fail(E_INVALID, "\"host\" is the built-in image; choose another name");
    if (!tag_valid(tag))
        return fail(E_INVALID,
                    "\"%s\" has no valid tag: use 1 to %d letters, digits and . _ - (not . or - "
                    "first)",
                    image_shown(ref, shown), IMAGE_TAG_MAX);
    struct image_name n = {0};
    memcpy(n.name, name.p, name.n);
    memcpy(n.tag, tag.p, tag.n);
    *out = n;
    return 0;
}

err image_name_check(const char *image)
{
    struct image_name ignored;
    struct str s = str_of(image);
    if (str_is(s, "host"))
        return 0;
    if (str_starts(s, STR("dir:")) || str_starts(s, STR("tar:")) || str_starts(s, STR("oci:")))
        return fail(E_FORBIDDEN, "paths are not allowed as images here: import it into the store "
                                 "(pi-managed image import NAME SOURCE) and use its name");
    return image_name_parse(image, &ignored);
}

bool image_is_derived(const struct image_name *n)
{
    return strcmp(n->name, IMAGE_NAME_BAKED) == 0 || strcmp(n->name, IMAGE_NAME_LOCAL) == 0;
}

bool image_path_allowed(const char *image, const char *allowed)
{
    struct str path = str_of(image), rest = str_of(allowed), prefix, kind;
    str_split(&path, ':', &kind);
    if (path.n > 1 && path.p[path.n - 1] == '/')
        path.n--;
    if (!path_is_clean(path) ||
        !(str_is(kind, "dir") || str_is(kind, "tar") || str_is(kind, "oci")))
        return false;
    while (rest.n > 0) {
        str_split(&rest, ',', &prefix);
        if (prefix.n > 1 && path_is_clean(prefix) && path_is_within(path, prefix))
            return true;
    }
    return false;
}

bool image_digest_valid(struct str hex)
{
    if (hex.n != IMAGE_DIGEST_MAX)
        return false;
    for (size_t i = 0; i < hex.n; i++) {
        if (!(hex.p[i] >= '0' && hex.p[i] <= '9') && !(hex.p[i] >= 'a' && hex.p[i] <= 'f'))
            return false;
    }
    return true;
}

const char *image_shown(const char *raw, char out[IMAGE_SHOWN_MAX])
{
    size_t n = strnlen(raw, IMAGE_SHOWN_MAX);
    bool cut = n == IMAGE_SHOWN_MAX;
    if (cut)
        n = IMAGE_SHOWN_MAX - 4;
    bool utf8 = str_is_utf8(str_of(raw));
    if (utf8)
        n = str_utf8_floor(str_of(raw), n);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)raw[i];
        out[i] = c < 0x20 || c == 0x7f || (c >= 0x80 && !utf8) ? '?' : raw[i];
    }
    snprintf(out + n, IMAGE_SHOWN_MAX - n, "%s", cut ? "..." : "");
    return out;
}
