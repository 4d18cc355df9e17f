#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct block {
    struct block *next;
    size_t used, size;
    alignas(max_align_t) unsigned char data[];
};

struct arena {
    struct block *head;
    size_t block_size;
};

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

void *arena_alloc(struct arena *a, size_t n)
{
    struct block *b = a->head;

    n = round_up(n ? n : 1, alignof(max_align_t));
    if (b == NULL || b->size - b->used < n) {
        size_t size = n > a->block_size ? n : a->block_size;

        if (size > SIZE_MAX - sizeof *b)
            return NULL;
        b = malloc(sizeof *b + size);
        if (b == NULL)
            return NULL;
        b->next = a->head;
        b->used = 0;
        b->size = size;
        a->head = b;
    }
    void *p = b->data + b->used;
    b->used += n;
    return p;
}

char *arena_strdup(struct arena *a, const char *s)
{
    size_t n = strlen(s) + 1;
    char *copy = arena_alloc(a, n);

    return copy ? memcpy(copy, s, n) : NULL;
}

void arena_release(struct arena *a)
{
    while (a->head) {
        struct block *next = a->head->next;
        free(a->head);
        a->head = next;
    }
}
