/* What the parent passes on to makers, field by field. */
#include <string.h>

#include "parent/makers.h"
#include "sandbox/packages.h"

static bool text_ends(const char *p, size_t cap)
{
    return memchr(p, 0, cap) != NULL;
}

static bool image_shape(const char *image)
{
    for (const char *p = image; *p; p++) {
        if (*p <= ' ' || *p > '~')
            return false;
    }
    return image[0] != 0;
}

/* A snapshot is a sandbox that never starts. */
static bool may_be_of(uint32_t verb, const char *id)
{
    bool builds = verb == PARENT_IMAGE_PREPARE;
    bool rests = verb == PARENT_SANDBOX_FORK || verb == PARENT_SANDBOX_STATS ||
                 verb == PARENT_SANDBOX_DESTROY;
    return id_valid(str_of(id), MAKERS_BUILD_ID) || (!builds && id_valid(str_of(id), "sess")) ||
           (rests && id_valid(str_of(id), SANDBOX_SNAPSHOT_ID));
}

err makers_check(uint32_t verb, const struct sandbox_spec *spec)
{
    bool builds = verb == PARENT_IMAGE_PREPARE;
    if (!text_ends(spec->id, sizeof spec->id) || !may_be_of(verb, spec->id))
        return fail(E_INVALID, "the sandbox's id is not a session id");
    if (verb != PARENT_SANDBOX_CREATE && verb != PARENT_SANDBOX_START &&
        verb != PARENT_SANDBOX_FORK && !builds)
        return 0; /* the provider reads the rest of the spec from its folder */
    if (!text_ends(spec->tenant, sizeof spec->tenant) || !id_valid(str_of(spec->tenant), "tenant"))
        return fail(E_INVALID, "the sandbox's tenant is not a tenant id");
    bool same = verb == PARENT_SANDBOX_FORK && spec->image[0] == 0;
    if (!same && (!text_ends(spec->image, sizeof spec->image) || !image_shape(spec->image)))
        return fail(E_INVALID, "the image name must be visible ASCII");
    if (spec->cpu_milli > 1024 * 1000)
        return fail(E_INVALID, "cpu: at most 1024 processors");
    if (spec->memory_mib > 16u << 20 || spec->disk_mib > 1u << 30)
        return fail(E_INVALID, "memory: at most 16 TiB; disk: at most 1 PiB");
    if (spec->pids > 4u << 20)
        return fail(E_INVALID, "pids: at most 4194304");
    return mounts_check(spec->mounts, spec->mount_count);
}

static err accept_package(void *arg, enum package_kind kind, struct str name)
{
    (void)arg, (void)kind, (void)name;
    return 0;
}

static err check_packages(const struct parent_image *image)
{
    return text_ends(image->packages, sizeof image->packages)
               ? packages_each(str_of(image->packages), accept_package, NULL)
               : fail(E_INVALID, "the list of packages does not end");
}

static err check_source(const struct parent_sandbox *fork)
{
    return text_ends(fork->from, sizeof fork->from) && may_be_of(PARENT_SANDBOX_FORK, fork->from) &&
                   strcmp(fork->from, fork->spec.id) != 0
               ? 0
               : fail(E_INVALID, "what is to be copied is neither a sandbox nor a snapshot");
}

/* A mount, or a volume in place of a sandbox. */
static err check_of_mounts(uint32_t verb, const struct sandbox_spec *spec)
{
    if (!text_ends(spec->id, sizeof spec->id) || !text_ends(spec->tenant, sizeof spec->tenant))
        return fail(E_INVALID, "an id does not end");
    if (verb == PARENT_MOUNT_CHECK)
        return spec->mount_count == 1 ? mounts_check(spec->mounts, 1)
                                      : fail(E_INVALID, "one mount is checked at a time");
    return id_valid(str_of(spec->id), MOUNT_VOLUME_ID) && id_valid(str_of(spec->tenant), "tenant")
               ? 0
               : fail(E_INVALID, "that is no volume of a tenant");
}

bool makers_is_of_mounts(uint32_t verb)
{
    return verb == PARENT_MOUNT_CHECK || verb == PARENT_VOLUME_MEASURE ||
           verb == PARENT_VOLUME_REMOVE;
}

err makers_check_message(const struct parent_message *m)
{
    if (makers_is_of_mounts(m->verb))
        return check_of_mounts(m->verb, &m->sandbox.spec);
    TRY(makers_check(m->verb, &m->sandbox.spec));
    if (m->verb == PARENT_SANDBOX_FORK)
        return check_source(&m->sandbox);
    return m->verb == PARENT_IMAGE_PREPARE ? check_packages(&m->image) : 0;
}
